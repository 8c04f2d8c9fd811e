"""The page: whole in itself, and deaf to what a label is called."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from peltier_adapters.artifact.manifest import BackboneRef, TrainingRecord
from peltier_adapters.spec.tasks import TaskSpec
from peltier_client.protocol.reports import MAX_REPORT_BYTES, ReportCount, TrainingReport
from peltier_training.delivery import write_file
from peltier_training.errors import TrainingError
from peltier_training.report import plots
from peltier_training.report.answers import Confusion, LabelScores, Mistake, Sample
from peltier_training.report.caveats import Majority
from peltier_training.report.cost import Cost, ParameterCounts
from peltier_training.report.merging import Merging, Spread, Way
from peltier_training.report.page import most_confused, render, report_paths, to_json, weakest_first
from peltier_training.report.report import ArtifactFile, CurvePoint, Curves, GateMap, Report, Resolved

from tests.support.full_disk import room_for

HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "$\\frac{", "{{ 7 * 7 }}", "标签 \u202e x")


@pytest.fixture(scope="module", autouse=True)
def _curves_are_drawn_once() -> Iterator[None]:
    """Most reports of these tests have the same ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "curve_svg", cache(plots.curve_svg))
        yield


def confused(labels: Sequence[str]) -> Confusion:
    rows = tuple(tuple(10 * (i == j) + (j == 0) for j in range(len(labels))) for i in range(len(labels)))
    return Confusion(labels=tuple(labels), matrix=rows, unknown=(0,) * len(labels))


def _numbers(count: int) -> list[str]:
    return [f"label {number}" for number in range(count)]


def create_report(labels: Sequence[str] = ("no", "yes"), **changes: object) -> Report:
    """A report with something in every section that `changes` names."""
    part = ReportCount(part="lora", parameters=1000, percent=0.1)
    points = tuple(CurvePoint(step=step, epoch=step / 3, value=1 / step) for step in range(1, 7))
    own = {
        "name": "toy", "preset": "lora", "metrics": {"accuracy": 0.9}, "metric": "accuracy",
        "artifact": ArtifactFile(file="toy.safetensors", digest=f"sha256:{0:064}", bytes=4096),
        "backbone": BackboneRef(
            family="bert", fingerprint=f"sha256:{0:064}", hidden_size=48, num_layers=3, num_parameters=9, name="b"
        ),
        "task": TaskSpec(type="classification", labels=tuple(labels), inputs="single", max_length=16),
        "training": TrainingRecord(
            data={"validation": "v.jsonl", "validation_rows": 20},
            hyperparameters={"seed": 1, "eval_rows": None, "settings": {"rank": 8}},
        ),
        "curves": Curves(training={"loss": points}, validation={"accuracy": points[2::3]}, best_step=3),
        "parameters": ParameterCounts(backbone=1_000_000, parts=(part,), total=part, trained=part),
        "cost": Cost(
            device="cpu", dtype="float32", seconds_per_epoch=61, training_seconds=122, total_seconds=4000,
            memory_bytes=5 * 2**29, device_memory_bytes=None,
        ),
        "confusion": confused(labels),
    }  # fmt: skip
    return Report.model_validate(own | changes)


def create_merging() -> Merging:
    """Two routes beside each other, one of them without a loss."""
    several = Spread(values=(0.5, 0.7), mean=0.6, sd=0.1414)
    ways = [
        Way(name="merged", metrics={"accuracy": Spread(values=(0.8,), mean=0.8, sd=None)}),
        Way(name="random routing", metrics={"accuracy": several, "loss": several}),
    ]
    return Merging(experts=4, share="up", consistency=1.0, passes=4, ways=tuple(ways))


class Reader(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("num_labels", [2, 40], ids=["table", "heat map"])
def test_the_page_fetches_nothing(num_labels: int):
    """No address in it, no script, and what it refers to is in the page itself."""
    gates = GateMap(rows=20, means={"prefix": (0.1, 0.9, 0.5), "lora.query": (0.3, 0.2, 0.1)})
    page = render(create_report(_numbers(num_labels), gates=gates))
    assert "http" not in page.replace("http-equiv", "")
    tags = Reader(page).tags
    assert {"script", "link", "iframe", "object"}.isdisjoint(tag for tag, _ in tags)
    references = [value for _, own in tags for name, value in own.items() if name in ("src", "href", "xlink:href")]
    assert all(value and value.startswith(("#", "data:image/png;base64,")) for value in references)
    assert not re.search(r"url\((?!#)", page)


def test_ids_are_the_pages_own():
    """Two drawings on one page do not share an id, and every reference finds its target."""
    page = render(create_report(gates=GateMap(rows=2, means={"prefix": (0.5,)})))
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', page)) <= set(ids)


MAJORITY = Majority(answer=HOSTILE[0], share=0.5, metric="accuracy", metrics={"accuracy": 0.5})
MISTAKES = tuple(Mistake(input=(text, text), label=text, answer=text, score=0.5) for text in HOSTILE)
SAMPLES = tuple(Sample(input=(text, text), references=(text,) * 5, text=text) for text in HOSTILE)
PAIRS = TaskSpec(type="classification", labels=("a", "b"), inputs="pair", max_length=16)


@pytest.mark.parametrize(
    ("report", "times"),
    [
        (create_report([*HOSTILE, *_numbers(20)]), 1),
        (create_report(HOSTILE), 1),
        (create_report(samples=SAMPLES, confusion=None, task=PAIRS), 6),
        (create_report(mistakes=MISTAKES, warnings=HOSTILE, majority=MAJORITY), 5),
    ],
    ids=["heat map", "table", "samples", "mistakes"],
)
def test_hostile_texts_are_texts(report: Report, times: int):
    """Labels, texts and sentences that are tags, mathematics or templates are shown as they are spelt."""
    reader = Reader(render(report))
    assert {"script", "img"}.isdisjoint(tag for tag, _ in reader.tags)
    assert not any(name.startswith("on") for _, own in reader.tags for name in own)
    assert all(reader.texts.count(text) >= times for text in HOSTILE)
    assert report.samples is None or "and 2 more" in reader.texts


def test_a_metric_stands_beside_the_constant_answers():
    """The majority baseline has a number in the card of each metric, and its answer and share in words."""
    majority = Majority(answer="no", share=0.613, metric="accuracy", metrics={"accuracy": 0.613})
    page = " ".join(render(create_report(majority=majority)).split())
    assert "accuracy<b>0.9000</b><small>majority 0.6130</small>" in page
    assert "no, the most frequent one (61.3 % of the rows)." in page


def test_one_evaluation_is_a_table():
    """A plot of one point says nothing; its numbers are open to read, and a curve of training stays one."""
    points = tuple(CurvePoint(step=step, epoch=step / 3, value=1 / step) for step in range(1, 4))
    curves = Curves(training={"loss": points}, validation={"accuracy": points[-1:]}, best_step=3)
    page = render(create_report(curves=curves))
    assert "training loss from" in page
    assert "validation accuracy from" not in page
    assert "<summary>" not in page
    assert "There was one evaluation" in page
    cells = [text for text in Reader(page).texts if text in ("epoch 1", "0.3333")]
    assert cells == ["epoch 1", "0.3333"]
    page = render(create_report(curves=curves.model_copy(update={"training": {"loss": points[-1:]}})))
    assert "<svg" not in page


def test_the_weakest_labels_come_first():
    """With precision, recall and F1; what is not defined is a dash, and comes last."""
    scores = (
        LabelScores(label="good", rows=9, precision=1.0, recall=0.5, f1=2 / 3),
        LabelScores(label="none", rows=0, precision=None, recall=None, f1=None),
        LabelScores(label="bad", rows=3, precision=None, recall=0.0, f1=0.0),
    )
    assert [one.label for one in weakest_first(scores)] == ["bad", "good", "none"]
    page = " ".join(render(create_report(label_scores=scores)).split())
    cells = '<td class="n">9</td><td class="n">1.000</td> <td class="n">0.500</td><td class="n">0.667</td>'
    assert f'<th scope="row">good</th>{cells}' in page


def test_what_was_left_to_auto_is_resolved():
    """Every value with what it became."""
    resolved = Resolved(
        device="cpu", dtype="float32", threads=2, pooling="mean", metric="accuracy", learning_rate=3e-3, batch_size=32,
        max_length=128, epochs=5.0, steps=95, best_epoch=4.0, best_step=76,
        ended="the given epochs are done",
    )  # fmt: skip
    training = TrainingRecord(
        data={"validation": "v", "validation_rows": 1},
        hyperparameters={"eval_rows": None, "settings": {"pooling": "auto"}},
    )
    page = render(create_report(resolved=resolved, training=training))
    pairs = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", page))
    expected = {
        "dtype": "float32", "threads": "2", "metric": "accuracy", "learning rate": "0.003", "batch size": "32",
        "max length": "128", "epochs": "5", "steps": "95", "best epoch": "4", "best step": "76",
        "ended": "the given epochs are done",
        "pooling": "auto: mean",
    }  # fmt: skip
    assert expected.items() <= pairs.items()


def test_colours_follow_the_reader():
    """Drawings have no black or white of their own outside the cells of a heat map; the page has two palettes."""
    page = render(create_report())
    assert "prefers-color-scheme: dark" in page
    assert "currentColor" in page
    assert "var(--main)" in page
    drawing = page[page.index("<svg") : page.index("</svg>")]
    assert not re.search(r"#[0-9a-f]{6}\b", drawing)


def test_a_screen_reader_is_told_what_a_curve_does():
    """Where it begins and ends and what was kept, with the same numbers in a table."""
    page = render(create_report())
    assert 'aria-label="validation accuracy from 0.3333 at epoch 1 to 0.1667 at 2, 0.3333 at the epoch' in page
    cells = [text for text in Reader(page).texts if text in ("epoch 1", "epoch 2", "0.3333", "0.1667")]
    assert cells == ["epoch 1", "epoch 2", "0.3333", "0.1667"]


def test_gates_are_a_table_of_layers():
    """A cell a layer, numbered from 1, shaded by how far the gate is open; a dash in a layer without the part."""
    page = render(create_report(gates=GateMap(rows=2, means={"prefix": (0.25, 0.75), "bottleneck": (None, 0.5)})))
    assert '<td>\u2013</td><td style="--share: 0.500">0.50</td>' in page
    assert '<td style="--share: 0.250">0.25</td><td style="--share: 0.750">0.75</td>' in page
    assert '<th scope="col">1</th><th scope="col">2</th>' in page


def test_merging_has_a_table_and_a_plot():
    """Means with deviations, a dash for what an ensemble has not, and the means aloud."""
    page = render(create_report(merging=create_merging(), metrics={"accuracy": 0.8, "loss": 0.6}))
    assert 'aria-label="Mean accuracy: merged 0.8, random routing 0.6"' in page
    assert re.findall(r'<td class="n">([^<]+)</td>', page[page.index("<h2>Merging") :])[:4] == [
        "0.8000", "\u2013", "0.6000 ± 0.1414", "0.6000 ± 0.1414",
    ]  # fmt: skip
    assert "the up projection shared" in " ".join(page.split())


def test_times_and_sizes_are_for_people():
    page = render(create_report())
    assert "2 min 2 s" in page
    assert "1 min 1 s" in page
    assert "1 h 6 min" in page
    assert "2.5 GiB" in page
    assert "4 KiB" in page


def test_the_most_frequent_mistakes_come_first():
    """Right answers are no mistakes, and what never happened is not listed."""
    found = Confusion(labels=("a", "b", "c"), matrix=((9, 1, 0), (5, 9, 0), (0, 2, 9)), unknown=(0, 0, 0))
    assert most_confused(found) == [("b", "a", 5), ("c", "b", 2), ("a", "b", 1)]


def test_rows_that_were_left_out_are_counted():
    """By file: names alone would say that every file was left out."""
    report = create_report()
    data = report.training.data | {"skipped_rows": {"train": 3, "validation": 1}}
    page = render(create_report(training=report.training.model_copy(update={"data": data})))
    assert "<dd>train 3, validation 1</dd>" in page


def test_reports_lie_beside_their_artifact():
    """Two artifacts in one folder have reports of their own, dots in their names or not."""
    one, other = report_paths(Path("a/sst2.v1.safetensors")), report_paths(Path("a/sst2.v2"))
    assert one == (Path("a/sst2.v1.report.json"), Path("a/sst2.v1.report.html"))
    assert other == (Path("a/sst2.v2.report.json"), Path("a/sst2.v2.report.html"))


def test_a_file_is_replaced_in_one_step(tmp_path: Path):
    """A write that breaks off leaves what was there, and nothing beside it."""
    path = tmp_path / "a"
    write_file(path, b"old")
    with room_for(1000), pytest.raises(TrainingError, match="a cannot be written: File too large"):
        write_file(path, bytes(2000))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_explained(tmp_path: Path):
    """One sentence, and nothing half-written stays."""
    (tmp_path / "taken").mkdir()
    with pytest.raises(TrainingError, match="taken cannot be written: Is a directory"):
        write_file(tmp_path / "taken", b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_server_takes_every_report():
    """Of many labels it has no confusion matrix, of many points of a curve some, and of long texts no samples."""
    few, many = (create_report(names, confusion=confused(names)) for names in (_numbers(450), _numbers(1000)))
    assert b'"matrix"' in to_json(few)
    assert len(to_json(many)) <= MAX_REPORT_BYTES
    assert TrainingReport.model_validate_json(to_json(many)).confusion is None

    points = tuple(CurvePoint(step=step, epoch=step / 3, value=1 / step) for step in range(1, 20_001))
    curves = Curves(training={"loss": points}, validation={"accuracy": points}, best_step=777)
    read = TrainingReport.model_validate_json(to_json(create_report(curves=curves)))
    steps = [point.step for point in read.curves.validation["accuracy"]]
    assert steps == sorted(steps)
    assert {777, 20_000} <= set(steps)
    assert len(steps) == 1001

    long = create_report(samples=tuple(Sample(input="a" * 2**18, references=("b",), text="c") for _ in range(8)))
    assert TrainingReport.model_validate_json(to_json(long)).samples is None
