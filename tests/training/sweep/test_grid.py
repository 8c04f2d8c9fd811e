"""Which trials a description has and cannot have, and what makes two of them the same."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.backbone import Backbone
from peltier_training.config.run import Hyperparameters
from peltier_training.config.task_options import EmbeddingOptions
from peltier_training.data.data import read_file
from peltier_training.errors import TrainingError
from peltier_training.sweep.description import SweepTask, create_description
from peltier_training.sweep.grid import Grid, TaskData
from peltier_training.sweep.worker import _draw
from transformers import T5ForConditionalGeneration

from tests.training.sweep.conftest import MakeSweep, MakeTrial, Tables


def changed(tables: Tables, **changes: Any) -> Tables:
    """The tables with each of `changes` in its own: `common={"epochs": 2}` changes one key of common."""
    return tables | {
        name: {**tables.get(name, {}), **value} if isinstance(value, dict) else value for name, value in changes.items()
    }


def test_trials_are_every_point_of_the_grid(make_sweep: MakeSweep, tables: Tables):
    """Seed after seed, so that a sweep that is stopped has some of everything."""
    more = {"methods": {"mix": {"preset": "adamix", "settings": {"experts": [2, 3], "bottleneck": 8}}}}
    trials = make_sweep(changed(tables, sizes={"32": {}}, **more)).trials
    assert len(trials) == len({trial.key for trial in trials}) == 2 * 2 * (1 + 2)
    assert [trial.seed for trial in trials] == [0] * 6 + [1] * 6
    assert [(trial.method, trial.size, dict(trial.axes)) for trial in trials[:4]] == [
        ("lora", 16, {}),
        ("lora", 32, {}),
        ("mix", 16, {"experts": "2"}),
        ("mix", 16, {"experts": "3"}),
    ]


def test_later_layers_win(make_sweep: MakeSweep, tables: Tables):
    """The method over the size, the size over the task, the task over all; what only one names stays."""
    layers = {"common": {"epochs": 2, "dropout": 0.2}, "sizes": {"16": {"epochs": 4, "warmup": 0.0}}}
    given = changed(tables, methods={"lora": {"epochs": 5}}, **layers)
    given["tasks"] = {"toy": {**tables["tasks"]["toy"], "epochs": 3, "dropout": 0.3, "metric": "f1"}}
    numbers = make_sweep(given).trials[0].run.hyperparameters
    assert (numbers.epochs, numbers.dropout, numbers.warmup, numbers.metric) == (5, 0.3, 0.0, "f1")
    assert numbers.learning_rate == 0.05


def test_baselines_are_trials_too(make_sweep: MakeSweep, tables: Tables, bert: Any):
    """Full fine-tuning trains all of the backbone."""
    full = make_sweep(changed(tables, methods={"full": {}})).trials[1]
    assert full.parameters == bert.config.num_parameters


def test_a_draw_knows_the_labels_that_it_may_miss(make_sweep: MakeSweep, tables: Tables):
    """They are those of the whole training file."""
    assert make_sweep(tables).trials[0].run.data.labels == ("negative", "positive")


def test_what_the_preflight_finds_is_told_of_each_task(tables: Tables, tmp_path: Path):
    """Once for each length that trials read of its rows, with the name of the task."""
    train = Path(tables["tasks"]["toy"]["train"])
    (tmp_path / "long.jsonl").write_text(train.read_text() + json.dumps({"text": "film " * 40, "label": "positive"}))
    tasks = {"toy": {**tables["tasks"]["toy"], "train": str(tmp_path / "long.jsonl")}}
    given = changed(tables, tasks=tasks, common={"max_length": [16, 90]}, methods={"lora": {}, "bitfit": {}})
    grid = Grid(create_description(given), Path(), tmp_path)
    told = [line for line in grid.warnings(grid.trials()) if "Inputs" in line]
    assert told == ["toy: Inputs with more than 16 tokens, whose rest is not read: 1 of 49; the longest has 42."]


def test_changed_data_make_other_trials(make_sweep: MakeSweep, tables: Tables, tmp_path: Path):
    """A file counts by what it holds, not by where it lies."""
    source = Path(tables["tasks"]["toy"]["train"])
    copy, longer = tmp_path / "copy.jsonl", tmp_path / "longer.jsonl"
    copy.write_bytes(source.read_bytes())
    longer.write_text(source.read_text() + json.dumps({"text": "good", "label": "positive"}))

    def key(train: Path) -> str:
        return make_sweep(changed(tables, tasks={"toy": {**tables["tasks"]["toy"], "train": str(train)}})).trials[0].key

    assert key(source) == key(copy) != key(longer)


def test_another_tokenizer_makes_other_trials(make_sweep, tables, tmp_path, bert_directory):
    """It decides what the backbone reads as much as the weights decide what it answers."""
    same, other = (shutil.copytree(bert_directory, tmp_path / name) for name in ("same", "other"))
    file = other / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    file.write_text(json.dumps(tokenizer | {"truncation": {"max_length": 5}}))
    first, second, third = (
        make_sweep(tables | {"backbone": str(path)}).trials[0].key for path in (bert_directory, same, other)
    )
    assert first == second != third


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "preset": ({"methods": {"nothing": {}}}, "preset 'nothing' is unknown; it is one of houlsby"),
    "setting": ({"methods": {"lora": {"settings": {"colour": 1}}}}, "preset 'lora' has no setting 'colour'"),
    "value": ({"methods": {"lora": {"settings": {"rank": "much"}}}}, "setting 'rank' is 'much'"),
    "shape": ({"methods": {"compacter": {"settings": {"n": 5}}}}, "preset 'compacter' does not fit"),
    "rate": ({"methods": {"lora": {"learning_rate": [1e-3, -1]}}}, "learning_rate is -1.0"),
    "metric": ({"common": {"metric": "bleu"}}, "metric 'bleu' is not one of classification's"),
    "length": ({"common": {"max_length": 97}}, "max_length is 97; this backbone takes 96 tokens"),
    "no experts": ({"methods": {"lora": {"merge_report": True}}}, "a merge report compares AdaMix's experts"),
    "size": ({"sizes": {"49": {}}}, "task 'toy' has 48 training rows, too few for 49 to train on and 0"),
    "dev rows": ({"dev_rows": 33}, "48 training rows, too few for 16 to train on and 33 to choose the epoch"),
    "file": ({"tasks": {"toy": {"train": "no.jsonl", "validation": "no.jsonl"}}}, "no.jsonl does not exist"),
    "name": ({"tasks": {"Toy": {"train": "x", "validation": "x"}}}, "x is not a data file"),
    "experts": ({"methods": {"adamix": {"settings": {"experts": 500}}}}, "setting 'experts' is 500; it must be from"),
    "pooling": ({"methods": {"full": {"settings": {"pooling": "foo"}}}}, "preset 'full' cannot be built: pooling is"),
    "dimension": (
        {"methods": {"intrinsic-said": {"settings": {"dimension": 55}}}},
        "setting 'dimension' is 55; it must exceed the backbone's 55 tensors",
    ),
    "device": ({"device": "tpu"}, "device is 'tpu': input should be 'auto', 'cpu' or 'cuda'"),
    "dtype": ({"dtype": "float8"}, "dtype is 'float8': input should be"),
    "twice": ({"seeds": [0, 0]}, "toy, lora, 16 rows, seed 0 is in the grid twice"),
    "same": ({"common": {"settings": {"rank": [4, "04"]}}}, "toy, lora, rank 04, 16 rows, seed 0 is in the grid twice"),
    "backbone": ({"backbone": "./nowhere"}, "backbone './nowhere' is not a directory"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused_before_it_starts(make_sweep, tables, change, message, tmp_path):
    """Whatever is wrong with the last trial, the first has not begun, and nothing is written."""
    with pytest.raises(Exception, match=message) as caught:
        make_sweep(changed(tables, **change))
    assert getattr(caught.value, "is_user_error", False)
    assert list(tmp_path.iterdir()) == []


def test_wrong_labels_in_the_validation_file_are_refused(make_sweep: MakeSweep, tables: Tables, tmp_path: Path):
    """They would fail each trial at its end."""
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(json.dumps({"text": "good", "label": "perfect"}))
    with pytest.raises(TrainingError, match="label 'perfect' is not one of the task's 2 labels"):
        make_sweep(changed(tables, tasks={"toy": {**tables["tasks"]["toy"], "validation": str(wrong)}}))


def test_a_template_is_known_or_has_a_text(make_sweep: MakeSweep, tables: Tables, t5: Backbone):
    """On a T5, which alone reads them."""
    tables |= {"backbone": t5.name, "tasks": {"toy": {**tables["tasks"]["toy"], "text": {"template": "sst3"}}}}
    with pytest.raises(TrainingError, match=r"template 'sst3' has no .* is not a known name"):
        make_sweep(tables)


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_pooler_that_is_not_there_is_refused(method, make_sweep, tables, roberta, tmp_path):
    """The checkpoint's names tell, before its weights are read."""
    methods = {method: {"settings": {"pooling": "pooler"}}}
    with pytest.raises(TrainingError, match=r"part 'head' needs a pooler, which backbone .* does not have; set"):
        make_sweep(tables | {"backbone": roberta.name, "methods": methods})
    assert make_sweep(tables | {"backbone": roberta.name, "methods": {method: {}}}).trials


def test_the_tensors_of_a_t5_are_counted_too(make_sweep: MakeSweep, tables: Tables, t5: Backbone):
    """As many as are tuned; one more number than that is a subspace."""
    num = len(dict(T5ForConditionalGeneration.from_pretrained(t5.name).named_parameters()))
    for dimension in (num, num + 1):
        methods = {"intrinsic-said": {"settings": {"dimension": dimension}}}
        given = changed(tables, methods=methods) | {"backbone": t5.name}
        if dimension > num:
            assert make_sweep(given).trials
            continue
        with pytest.raises(TrainingError, match=f"it must exceed the backbone's {num} tensors"):
            make_sweep(given)


def test_an_unwritable_folder_is_refused(tables: Tables, make_sweep: MakeSweep, tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(TrainingError, match=r"out cannot be written: \S+/file is not a folder"):
        make_sweep(tables, "file/out")


def test_any_other_folder_will_do(tables: Tables, make_sweep: MakeSweep, tmp_path: Path):
    """The one that the command is given in, and one whose parents are not there; a check makes neither."""
    grid = Grid(create_description(tables), tmp_path, Path())
    assert len(grid.trials()) == len(make_sweep(tables, "new/folder/out").trials)
    assert list(tmp_path.iterdir()) == []


def _pairs(folder: Path, *, scored: bool) -> dict[str, Any]:
    """A task of pairs of texts; each first text is in two rows."""
    rows = [{"text": f"good {number // 2}", "other": f"film {number}"} for number in range(12)]
    cells = [{**row, "score": number} if scored else row for number, row in enumerate(rows)]
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in cells))
    columns = {"text_columns": ["text", "other"]} | ({"label_column": "score"} if scored else {})
    return {"train": str(path), "validation": str(path), "task_type": "embedding", **columns}


@pytest.mark.parametrize(("scored", "metric"), [(True, "spearman"), (False, "mrr")])
def test_settings_of_embeddings_reach_a_trial(make_sweep, tables, tmp_path, scored, metric):
    """With the metric that the pairs have; a draw leaves pairs of one text together if they have no scores."""
    task = _pairs(tmp_path, scored=scored) | {"embedding": {"projection": 16, "matryoshka": "8"}}
    trial = make_sweep(tables | {"tasks": {"toy": task}, "sizes": {"5": {}}}).trials[0]
    assert (trial.run.embedding.projection, trial.run.embedding.dimensions) == (16, (8,))
    assert (trial.run.metric, trial.run.embedding.normalized) == (metric, True)
    drawn, num_rows = _draw(trial, tmp_path)
    first = [json.loads(line)["text"] for line in drawn.train.read_text().splitlines()]
    assert num_rows == len(first) == (5 if scored else 6)
    assert scored or len(set(first)) == 3


def test_settings_of_types_of_tasks_are_checked(make_sweep: MakeSweep, tables: Tables, tmp_path: Path):
    """Those of another type, too many dimensions, and options that there are not."""
    task = _pairs(tmp_path, scored=False)
    for change, message in (
        ({"common": {"ranking_loss": "pairwise"}}, "ranking_loss is for ranking; the task type is classification"),
        ({"common": {"stride": 4}}, "stride is for span and token-classification"),
        ({"tasks": {"toy": task | {"embedding": {"matryoshka": "64"}}}}, "matryoshka has 64 dimensions"),
        ({"tasks": {"toy": task | {"embedding": {"size": 64}}}}, "embedding has no option 'size'; it has projection"),
    ):
        with pytest.raises(TrainingError, match=message):
            make_sweep(changed(tables, **change))


def test_trials_skip_the_rows_that_their_sweep_skips(tmp_path: Path):
    """The names that a sweep found in the training file do not make a label of a 1 in a trial."""
    (tmp_path / "train.jsonl").write_text('{"text": "a", "label": "no"}\n{"text": "b", "label": "yes"}\n')
    (tmp_path / "validation.jsonl").write_text('{"text": "c", "label": 1}\n{"text": "d", "label": "no"}\n')
    for names, rows in ((None, ["d"]), (("no", "yes"), ["c", "d"])):
        task = SweepTask(train="train.jsonl", validation="validation.jsonl", labels=names, skip_bad_rows=True)
        data = TaskData.read(task, tmp_path).data
        found = read_file(data, data.validation, "classification", data.labels)
        assert [example.input for example in found.examples] == rows


DECIDING: dict[str, dict[str, Any]] = {
    "task": {"task": "other"},
    "size": {"size": 5},
    "dev rows": {"dev_rows": 5},
    "seed": {"seed": 1},
    "preset": {"preset": "lora"},
    "dtype": {"dtype": "bfloat16"},
    "device": {"device": "cpu"},
    "data": {"evidence": {"train": "9"}},
    "validation": {"evidence": {"validation": "9"}},
    "backbone": {"evidence": {"backbone": "9"}},
    "settings": {"evidence": {"settings": {"n": 2}}},
    "embedding": {"embedding": EmbeddingOptions(projection=8)},
    "hyperparameters": {"hyperparameters": Hyperparameters(epochs=1)},
}


@pytest.mark.parametrize("change", DECIDING.values(), ids=DECIDING)
def test_what_decides_the_outcome_is_in_the_key(make_trial: MakeTrial, change: dict[str, Any]):
    """A trial with another of these is another trial."""
    assert make_trial(**change).key != make_trial().key


def test_what_decides_nothing_is_not_in_the_key(make_trial: MakeTrial):
    """A renamed method, a moved file and another folder do not run a trial again."""
    trial = make_trial()
    moved = replace(trial.run, data=replace(trial.run.data, train=Path("there.jsonl")), output=Path("x.safetensors"))
    assert replace(trial, run=moved, method="mine", axes={"n": "4"}).key == trial.key


@dataclass(frozen=True)
class Newer(Hyperparameters):
    """What a later version may have."""

    momentum: float | None = None


def test_an_option_that_is_left_out_is_not_in_the_key(make_trial: MakeTrial):
    """A version with one more hyper-parameter still knows the trials of an earlier one."""
    assert make_trial(hyperparameters=Newer()).key == make_trial().key
    assert make_trial(hyperparameters=Newer(momentum=0.9)).key != make_trial().key


def test_a_name_says_where_on_the_grid(make_trial: MakeTrial):
    assert make_trial(size=100, seed=2, axes={"n": "4"}).name == "toy, compacter, n 4, 100 rows, seed 2"
