"""The table as text."""

import csv
import io
from collections.abc import Callable

import pytest
from peltier_training.sweep.rendering import to_csv, to_json, to_markdown, to_rich
from peltier_training.sweep.table import SweepTable, create_table
from peltier_training.sweep.trial import Trial, TrialResult
from rich.console import Console

MakeEntry = Callable[..., tuple[Trial, TrialResult]]


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
    """For machines."""
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
