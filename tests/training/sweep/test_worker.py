"""One trial, in this process."""

import math
from pathlib import Path

import pytest
from peltier_training.data.data import Data, read_file, write_examples
from peltier_training.data.examples import Example, read_examples
from peltier_training.data.gold import GoldEntity, GoldSpan, Tagged
from peltier_training.errors import TrainingError
from peltier_training.report.report import Report
from peltier_training.sweep import worker
from peltier_training.sweep.worker import draw
from peltier_training.train import TrainingResult


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_metric_that_is_no_number_is_a_failure(make_sweep, tables, tmp_path, monkeypatch, value):
    """A line of JSON cannot hold it, and a mean would hide it."""
    report = Report.model_construct(metrics={"accuracy": 0.5, "f1_macro": value}, merging=None)
    monkeypatch.setattr(worker, "train", lambda run: TrainingResult(report, None, None))
    with pytest.raises(TrainingError, match=f"f1_macro is {value} on the validation rows"):
        worker.run_trial(make_sweep(tables).trials[0], tmp_path)


EXAMPLES = [Example(f"text {number}", number, f"file:{number}") for number in range(50)]


def test_a_seed_draws_the_same_rows_again():
    assert draw(EXAMPLES, 10, 5, seed=1) == draw(EXAMPLES, 10, 5, seed=1)
    assert draw(EXAMPLES, 10, 5, seed=1) != draw(EXAMPLES, 10, 5, seed=2)


def test_no_row_is_drawn_twice():
    """What chooses the epoch is not trained on."""
    train, dev = draw(EXAMPLES, 30, 20, seed=3)
    assert sorted(example.label for example in train + dev) == list(range(50))
    assert (len(train), len(dev)) == (30, 20)


def test_a_smaller_draw_begins_a_larger_one():
    """Sizes of one seed differ in what is added, not in what is there."""
    assert draw(EXAMPLES, 40, 0, seed=1)[0][:15] == draw(EXAMPLES, 15, 0, seed=1)[0]


def test_all_rows_are_those_that_are_left():
    """Without a size everything is trained on but what chooses the epoch."""
    assert [len(part) for part in draw(EXAMPLES, None, 8, seed=0)] == [42, 8]
    assert len(draw(EXAMPLES, None, 0, seed=0)[0]) == 50


def test_documents_of_a_query_are_drawn_together():
    """None of them chooses the epoch if another is trained on."""
    examples = [Example((f"query {number % 10}", f"text {number}"), 0, "file:1") for number in range(40)]
    train, dev = draw(examples, 18, 8, seed=0, by_query=True)
    assert (len(train), len(dev)) == (20, 8)
    assert not {example.input[0] for example in train} & {example.input[0] for example in dev}


def test_written_rows_read_as_they_were(tmp_path: Path):
    """Pairs, labels of any type and letters outside ASCII."""
    examples = [Example(("größer", "a\nb"), 2.5, ""), Example(("x", '"'), ["a", "b"], "")]
    write_examples(tmp_path / "drawn.jsonl", examples, ("one", "two"), "score")
    found = read_examples(tmp_path / "drawn.jsonl", ("one", "two"), "score")
    assert [(example.input, example.label) for example in found] == [(one.input, one.label) for one in examples]


def test_entities_and_spans_read_as_they_were(tmp_path: Path):
    """Words with tags, spans of characters, and answers in contexts."""
    text, path = "Ada met a  friend", tmp_path / "drawn.jsonl"
    entities = (GoldEntity(0, 3, "person"), GoldEntity(8, 17, "person"))
    words, tags = ((0, 3), (4, 7), (8, 17)), ("B-person", "O", "B-person")
    labels = Tagged(entities), Tagged(entities, words, tags), Tagged(())
    examples = [Example(text, label, "") for label in labels]
    write_examples(path, examples, ("text",), "tags")
    found = read_file(Data(path, path, label_column="tags"), path, "token-classification", None).examples
    assert [(one.input, one.label) for one in found] == [(one.input, one.label) for one in examples]
    answers = [Example(("who?", text), label, "") for label in ((GoldSpan(0, "Ada"), GoldSpan(4, "met")), ())]
    write_examples(path, answers, ("question", "text"), "answers")
    found = read_file(Data(path, path, ("question", "text"), "answers"), path, "span", None).examples
    assert [(one.input, one.label) for one in found] == [(one.input, one.label) for one in answers]
