"""Rows drawn from a training set."""

from pathlib import Path

from peltier_training.data.examples import Example, read_examples
from peltier_training.sweep.sample import draw, write_examples

EXAMPLES = [Example(f"text {number}", number, f"file:{number}") for number in range(50)]


def test_a_seed_draws_the_same_rows_again():
    """And another seed draws others."""
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


def test_written_rows_read_as_they_were(tmp_path: Path):
    """Pairs, labels of any type and letters outside ASCII."""
    examples = [Example(("größer", "a\nb"), 2.5, ""), Example(("x", '"'), ["a", "b"], "")]
    write_examples(tmp_path / "drawn.jsonl", examples, ("one", "two"), "score")
    found = read_examples(tmp_path / "drawn.jsonl", ("one", "two"), "score")
    assert [(example.input, example.label) for example in found] == [(one.input, one.label) for one in examples]
