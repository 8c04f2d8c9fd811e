"""Plots of results."""

from collections.abc import Callable
from xml.etree import ElementTree

from peltier_training.sweep.plots import parameters_svg, size_svg
from peltier_training.sweep.trial import Trial, TrialResult

Entry = tuple[Trial, TrialResult]
MakeEntry = Callable[..., Entry]


def grid(make_entry: MakeEntry) -> list[Entry]:
    """Two tasks, two methods of which one has an axis, two sizes, two seeds."""
    methods = (("lora", {}, 10), ("mix", {"experts": "2"}, 20), ("mix", {"experts": "4"}, 20))
    return [
        make_entry(0.5 + seed / 10, task=task, method=method, axes=axes, size=size, seed=seed, parameters=parameters)
        for task in ("a", "b")
        for method, axes, parameters in methods
        for size in (100, 500)
        for seed in (0, 1)
    ]


def test_both_plots_are_drawings(make_entry: MakeEntry):
    """Well-formed, and the same entries give the same bytes."""
    entries = grid(make_entry)
    for draw in (size_svg, parameters_svg):
        svg = draw(entries)
        assert svg is not None
        assert ElementTree.fromstring(svg).tag.endswith("svg")  # noqa: S314 - our own
        assert draw(entries) == svg


def test_there_is_no_plot_of_a_single_point(make_entry: MakeEntry):
    """One size has no curve, one number of parameters no comparison, and no results have neither."""
    one = [make_entry(method=method) for method in ("a", "b")]
    assert (size_svg(one), parameters_svg(one)) == (None, None)
    assert (size_svg([]), parameters_svg([])) == (None, None)


def test_failed_trials_are_not_drawn(make_entry: MakeEntry):
    """They have no point; the others of their line do."""
    entries = [make_entry(size=size) for size in (100, 500)]
    entries.append(make_entry(failure="it broke", method="broken", size=100))
    assert size_svg(entries) == size_svg(entries[:-1])


def test_names_of_users_are_texts(make_entry: MakeEntry):
    """Neither markup nor mathematics."""
    entries = [make_entry(task="a", method="<b>$x$", size=size) for size in (1, 2)]
    svg = size_svg(entries)
    assert svg is not None
    ElementTree.fromstring(svg)  # noqa: S314 - our own
