"""The examples of docs/guides/data-formats.md are read as the page says, by the flags that it gives."""

import re
import shlex
from pathlib import Path

import pytest
from peltier_training.data.data import Data, LabelledData, read_labelled
from peltier_training.data.gold import GoldSpan
from peltier_training.errors import TrainingError

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "data-formats.md").read_text()
EXAMPLES = {
    match["name"]: match
    for match in re.finditer(
        r"^`(?P<name>\S+)`, (?:no flags|flags `(?P<flags>[^`]*)`)(?P<refused>, refused)?:\n"
        r"```\w+\n(?P<content>.*?)```\n(?:> (?P<reason>[^\n]*))?",
        PAGE,
        re.DOTALL | re.MULTILINE,
    )
}


def read(name: str, folder: Path) -> LabelledData:
    """The example as both files of a task."""
    example = EXAMPLES[name]
    path = folder / name
    path.write_text(example["content"])
    words = shlex.split(example["flags"] or "")
    skip = "--skip-bad-rows" in words
    values: dict[str, list[str]] = {}
    pairs = iter(word for word in words if word != "--skip-bad-rows")
    for flag, value in zip(pairs, pairs, strict=True):
        values.setdefault(flag, []).append(value)
    task_type = values.get("--task-type", ["classification"])[0]
    names = values["--labels"][0].split(",") if "--labels" in values else None
    data = Data(
        path,
        path,
        tuple(values.get("--text-column", ["text"])),
        values.get("--label-column", ["label"])[0],
        tuple(names) if names else None,
        values.get("--label-separator", [None])[0],
        skip,
    )
    data.check(task_type)
    return read_labelled(data, task_type)


WANTED = {
    "reviews.jsonl": (("negative", "positive"), [1, 0]),
    "numbered.csv": (("negative", "positive"), [1, 0]),
    "topics.jsonl": (("food", "price", "service"), [[1, 1, 0], [0, 0, 1], [0, 0, 0]]),
    "topics.csv": (("food", "price", "service"), [[1, 1, 0], [0, 0, 1], [0, 0, 0]]),
    "separated.csv": (("food", "price", "service"), [[1, 1, 0], [0, 0, 1], [0, 0, 0]]),
    "scores.jsonl": (("value",), [4.5, 1.0]),
    "ranking.jsonl": (("score",), [[1, 0], [0, 0]]),
    "pairs.csv": (("contradiction", "entailment"), [1, 0]),
    "triples.jsonl": (("0", "1"), [0, 1]),
    "semicolons.csv": (("negative", "positive"), [1, 0]),
    "tabs.tsv": (("negative", "positive"), [1, 0]),
    "skipped.jsonl": (("negative", "positive"), [1, 0]),
}
INPUTS = {
    "pairs.csv": ("a man plays a guitar", "a man makes music"),
    "triples.jsonl": ("The grass is wet.", "It rained.", "It is noon."),
    "semicolons.csv": "good, but long",
    "tabs.tsv": "good, but long",
}


SPANS = {"questions.jsonl": (GoldSpan(17, "the Alps"), GoldSpan(21, "Alps")), "squad.json": (GoldSpan(17, "the Alps"),)}


PAIRS = {"similar.jsonl": [4.2, 0], "partners.csv": [None, None]}
ENTITIES = ("words.jsonl", "spans.jsonl", "words.conll")


@pytest.mark.parametrize("name", ENTITIES)
def test_entities_are_read(name: str, tmp_path: Path):
    data = read(name, tmp_path)
    assert data.labels.names == ("O", "B-person", "I-person", "B-place", "I-place")
    first, second = data.train.examples
    assert [tuple(entity) for entity in first.label.entities] == [(0, 12, "person"), (17, 24, "person")]
    assert [tuple(entity) for entity in second.label.entities] == [(3, 9, "place")]


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_embeddings_are_read(name: str, tmp_path: Path):
    """Two texts with a score, or two that belong together."""
    found = read(name, tmp_path).train.examples
    assert [example.label for example in found] == PAIRS[name]
    assert [len(example.input) for example in found] == [2, 2]


@pytest.mark.parametrize("name", SPANS)
def test_spans_are_read(name: str, tmp_path: Path):
    found = read(name, tmp_path)
    assert found.labels.names == ("start", "end")
    assert [example.label for example in found.train.examples] == [SPANS[name], ()]
    assert found.train.examples[0].input == ("Where does the Inn rise?", "The Inn rises in the Alps.")


def test_every_example_of_the_page_is_tested():
    """One that reads, one that is refused, or the texts; none is left out."""
    refused = {name for name, example in EXAMPLES.items() if example["refused"]}
    assert set(EXAMPLES) == {*WANTED, *SPANS, *PAIRS, *ENTITIES, "data-to-text.jsonl"} | refused
    assert len(re.findall(r"^```\w+$", PAGE, re.MULTILINE)) == len(EXAMPLES)


@pytest.mark.parametrize("name", WANTED)
def test_an_example_is_read(name: str, tmp_path: Path):
    """With the labels and the targets that the page means."""
    names, targets = WANTED[name]
    found = read(name, tmp_path)
    assert found.labels.names == names
    assert found.labels.targets(found.train.examples).tolist() == targets
    assert found.train.examples[0].input == INPUTS.get(name, found.train.examples[0].input)


def test_texts_are_read(tmp_path: Path):
    found = read("data-to-text.jsonl", tmp_path)
    texts = found.labels.texts(found.train.examples)
    assert texts == ["Aromi serves Italian food.", "Aromi is an Italian place."]
    assert len({example.input for example in found.train.examples}) == 1


@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if example["refused"]])
def test_a_refused_example_is_refused(name: str, tmp_path: Path):
    with pytest.raises(TrainingError, match=re.escape(EXAMPLES[name]["reason"])):
        read(name, tmp_path)
