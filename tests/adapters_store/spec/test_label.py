"""The rule of a label's text, alone and in an artifact's manifest."""

import pytest
from peltier_adapters.spec.label import MAX_LABEL_CHARS, label_problem


@pytest.mark.parametrize(
    ("label", "problem"),
    [
        ("", "has 0 characters; a label has 1 to 256"),
        ("x" * (MAX_LABEL_CHARS + 1), "has 257 characters; a label has 1 to 256"),
        ("a\x1bb", "contains the invisible character U+001B"),
        ("a\nb", "contains the invisible character U+000A"),
        ("a\u2028", "contains the invisible character U+2028"),
        ("\u202egood", "contains the invisible character U+202E"),
        ("\ud800", "contains U+D800, half of a character"),
    ],
)
def test_a_label_that_no_artifact_may_have_is_told_why(label, problem):
    """The clause names the length or the character, and the rule."""
    assert label_problem(label).startswith(problem)


@pytest.mark.parametrize("label", ["a", "x" * MAX_LABEL_CHARS, "très bien", "数学", "a b", "👍🏽"])
def test_every_other_label_has_no_problem(label):
    """Spaces, other scripts and pictures are visible."""
    assert label_problem(label) is None
