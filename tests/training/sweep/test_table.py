"""Means and deviations over seeds, grouped, and their plots."""

import csv
import io
import statistics
from xml.etree import ElementTree

import pytest
from peltier_training.config.run import Hyperparameters
from peltier_training.errors import TrainingError
from peltier_training.sweep.plots import parameters_svg, size_svg
from peltier_training.sweep.table import (
    MEAN,
    Stat,
    SweepTable,
    check_grouping,
    create_table,
    default_grouping,
    to_csv,
    to_json,
    to_markdown,
    to_rich,
)
from rich.console import Console

from tests.training.sweep.conftest import Entry, MakeEntry


def test_a_cell_is_the_mean_over_seeds(make_entry: MakeEntry):
    """With the sample standard deviation; one value alone has none."""
    scores = [0.5, 0.6, 0.85]
    entries = [make_entry(score, seed=seed) for seed, score in enumerate(scores)]
    entries.append(make_entry(0.9, method="lora"))
    table = create_table(entries, ["method"])
    assert [row.labels for row in table.rows] == [("compacter",), ("lora",)]
    cell = table.rows[0].cells["toy accuracy"]
    assert (cell.mean, cell.sd, cell.count) == (statistics.fmean(scores), statistics.stdev(scores), 3)
    assert table.rows[1].cells["toy accuracy"] == Stat(0.9, None, 1)


def test_rows_are_in_the_order_of_the_grid(make_entry: MakeEntry):
    """By the first coordinate, then the second, whatever came in first."""
    places = [("b", 100), ("b", 20), ("a", 100), ("a", 20)]
    entries = [make_entry(method=method, size=size) for method, size in places]
    table = create_table(entries, default_grouping(trial for trial, _ in entries))
    assert table.by == ("size", "method")
    assert [row.labels for row in table.rows] == [("100", "b"), ("100", "a"), ("20", "b"), ("20", "a")]


def test_the_mean_over_tasks_is_taken_seed_by_seed(make_entry: MakeEntry):
    """A seed that lacks a task has none."""
    entries = [make_entry(0.2, task="a"), make_entry(0.4, task="b"), make_entry(1.0, task="a", seed=1)]
    cell = create_table(entries, ["method"]).rows[0].cells[MEAN]
    assert (cell.mean, cell.sd, cell.count) == (pytest.approx(0.3), None, 1)


def test_errors_have_no_mean_over_tasks(make_entry: MakeEntry):
    """A mean of accuracies and squared errors says nothing."""
    numbers = {"task_type": "regression", "hyperparameters": Hyperparameters(metric="mse")}
    table = create_table([make_entry(task="a"), make_entry(task="b", **numbers)], ["method"])
    assert MEAN not in table.columns


def test_a_failed_trial_counts_and_has_no_score(make_entry: MakeEntry):
    """The others of its group are the mean."""
    row = create_table([make_entry(0.5), make_entry(failure="it broke", seed=1)], ["method"]).rows[0]
    assert (row.failed, row.cells["toy accuracy"].count) == (1, 1)


def test_axes_group_by_default(make_entry: MakeEntry):
    """What the grid varies is a column; a method without it has an empty cell."""
    entries = [make_entry(method="mix", axes={"experts": "2"}), make_entry(method="mix", axes={"experts": "4"})]
    entries.append(make_entry(method="lora"))
    table = create_table(entries, default_grouping(trial for trial, _ in entries))
    assert [row.labels for row in table.rows] == [("mix", "2"), ("mix", "4"), ("lora", "")]


def test_routes_of_a_merge_report_are_columns(make_entry: MakeEntry):
    """Of the metric that the table shows; a method without experts has empty cells."""
    trial, result = make_entry(0.75, method="mix")
    found = {**result.metrics, "accuracy random routing": 0.5, "f1_macro random routing": 0.25}
    table = create_table([(trial, result.model_copy(update={"metrics": found})), make_entry(0.9)], ["method"])
    assert table.columns[:2] == ("toy accuracy", "toy accuracy random routing")
    assert table.rows[0].cells["toy accuracy random routing"] == Stat(0.5, None, 1)
    assert not any("routing" in name for name in table.rows[1].cells)


def test_an_unknown_coordinate_is_refused(make_entry: MakeEntry):
    """With those that there are; an axis of a single trial is one."""
    trials = [make_entry()[0], make_entry(axes={"n": "4"})[0]]
    check_grouping(trials, ["n", "task"])
    with pytest.raises(TrainingError, match="by 'colour'; the trials have task, method, preset, size, seed, n"):
        check_grouping(trials, ["colour"])


def test_no_results_are_no_rows():
    """A sweep that was stopped at once has an empty table."""
    assert create_table([], ["method"]).rows == ()


@pytest.fixture
def table(make_entry: MakeEntry) -> SweepTable:
    """Two methods, of which one failed once."""
    scores = {"houl|sby": (0.5, 0.75), "lora": (0.25, None)}
    entries = [
        make_entry(method=method, seed=seed, parameters=12345, score=score or 0, failure=None if score else "it broke")
        for method, found in scores.items()
        for seed, score in enumerate(found)
    ]
    return create_table(entries, ["method"])


def test_markdown_shows_mean_and_deviation(table: SweepTable):
    """Metrics to four digits, costs rounded, a column for what failed; a bar in a name is escaped."""
    assert to_markdown(table).splitlines() == [
        "| method | toy accuracy | parameters | s/epoch | seconds | memory MiB | failed |",
        "| --- | --: | --: | --: | --: | --: | --: |",
        "| houl\\|sby | 0.6250 ± 0.1768 | 12,345 | 0.25 | 2.0 | 3 | 0 |",
        "| lora | 0.2500 | 12,345 | 0.25 | 2.0 | 3 | 1 |",
    ]


def test_csv_has_every_number_unrounded(table: SweepTable):
    """One column each for mean, deviation and count; no deviation is an empty cell."""
    one, other = csv.DictReader(io.StringIO(to_csv(table)))
    assert float(one["toy accuracy sd"]) == table.rows[0].cells["toy accuracy"].sd
    assert (other["toy accuracy sd"], other["toy accuracy count"], other["failed"]) == ("", "1", "1")


def test_json_has_groups_and_values(table: SweepTable):
    assert to_json(table)[1] == {
        "group": {"method": "lora"},
        "failed": 1,
        "values": {
            name: {"mean": stat.mean, "sd": stat.sd, "count": stat.count} for name, stat in table.rows[1].cells.items()
        },
    }


def test_the_terminal_shows_the_same_cells(table: SweepTable):
    """Names are texts, never markup."""
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(to_rich(table))
    text = console.export_text()
    assert "houl|sby" in text
    assert "0.6250 ± 0.1768" in text


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
    ElementTree.fromstring(svg)  # noqa: S314 - our own
