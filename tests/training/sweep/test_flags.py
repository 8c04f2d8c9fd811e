"""The command line over a file."""

from pathlib import Path
from typing import Any

import pytest
from peltier_training.errors import TrainingError
from peltier_training.sweep.flags import Flags

FILE: dict[str, Any] = {
    "seeds": [0, 1, 2],
    "tasks": {"a": {"train": "a"}, "b": {"train": "b"}},
    "methods": {"mine": {"preset": "lora", "epochs": 3, "settings": {"rank": 4, "alpha": 8}}, "bitfit": {}},
    "sizes": {"100": {"epochs": 20}, "all": {}},
}


def test_without_flags_the_file_stands():
    """Word for word."""
    found = Flags().over(FILE)
    assert found["methods"]["mine"]["settings"] == FILE["methods"]["mine"]["settings"]
    assert {**found, "methods": 0} == {**FILE, "methods": 0}


def test_flags_choose_among_what_the_file_has():
    """Its layers come with the names; presets and sizes that it lacks are added."""
    found = Flags(tasks=["b"], presets=["mine", "houlsby"], sizes=["100", "7"]).over(FILE)
    assert found["tasks"] == {"b": {"train": "b"}}
    assert found["methods"]["mine"]["epochs"] == 3
    assert list(found["methods"]) == ["mine", "houlsby"]
    assert found["sizes"] == {"100": {"epochs": 20}, "7": {}}


def test_numbers_and_settings_win_over_every_layer():
    """They go into the methods, whose layer is the last; a name that comes twice is an axis."""
    flags = Flags(plain={"seeds": [5]}, numbers={"epochs": [1, 2]}, settings=["rank=1", "rank=2"])
    found = flags.over(FILE)
    assert found["seeds"] == [5]
    assert found["methods"]["mine"]["epochs"] == [1, 2]
    assert found["methods"]["mine"]["settings"] == {"rank": ["1", "2"], "alpha": 8}


def test_lists_of_names_are_layers_without_content():
    """`methods = ["lora"]` and `sizes = [100, "all"]` are short for tables."""
    found = Flags().over({"methods": ["lora"], "sizes": [100, "all"]})
    assert found["sizes"] == {"100": {}, "all": {}}
    assert list(found["methods"]) == ["lora"]


def test_a_task_needs_no_file():
    """Its paths are relative to the working directory."""
    data = {"train": Path("t.jsonl"), "validation": Path("v.jsonl"), "text_columns": ("one", "two")}
    found = Flags(tasks=["toy"], presets=["lora"], data=data).over({})
    assert found["tasks"]["toy"]["train"] == Path.cwd() / "t.jsonl"
    assert found["tasks"]["toy"]["text_columns"] == ("one", "two")


IDLE = {"label_column": "y", "text_columns": ("x",)}
WRONG: dict[str, tuple[Flags, dict[str, Any], str]] = {
    "task": (Flags(tasks=["c"]), FILE, "task 'c' is not in the sweep, which has a, b"),
    "no file": (Flags(tasks=["c"]), {}, "which has none: give --train and --validation"),
    "half": (
        Flags(tasks=["c"], data={"train": Path("t")}),
        {},
        "give --train and --validation together, with exactly one --task",
    ),
    "idle": (Flags(data=IDLE), FILE, "with exactly one --task; --label-column needs them; --text-column needs them"),
    "pair": (Flags(settings=["rank"]), FILE, "--set takes NAME=VALUE, not 'rank'"),
    "methods": (Flags(), {"methods": 3}, "methods is 3; it must be a list of names or a table of tables"),
    "layer": (Flags(), {"sizes": {"100": 3}}, "sizes is {'100': 3}; it must be"),
}


@pytest.mark.parametrize(("flags", "tables", "message"), WRONG.values(), ids=WRONG)
def test_wrong_flags_are_refused(flags: Flags, tables: dict[str, Any], message: str):
    """In one sentence."""
    with pytest.raises(TrainingError, match=message):
        flags.over(tables)
