"""Sweep files, right and wrong."""

from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.presets.baselines import find_method
from peltier_adapters.presets.presets import PRESETS
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_training.errors import TrainingError
from peltier_training.sweep.description import Flags, create_description, read_description

TASK = {"train": "train.jsonl", "validation": "validation.jsonl"}


def described(**tables: Any) -> dict[str, Any]:
    """Tables with all that must be there."""
    return {"tasks": {"toy": TASK}, "methods": {"lora": {}}} | tables


def test_one_value_is_an_axis_of_one():
    given = create_description(described(seeds=3, common={"epochs": 2, "settings": {"rank": [4, 8]}}))
    assert (given.seeds, given.common.epochs, given.common.settings) == ((3,), (2,), {"rank": (4, 8)})


def test_without_sizes_all_rows_are_trained_on():
    """And the task's columns are those of `peltier train`."""
    given = create_description(described())
    assert list(given.sizes) == ["all"]
    assert (given.tasks["toy"].text_columns, given.tasks["toy"].label_column) == (("text",), "label")


FOLDER = Path(__file__).parents[3] / "benchmarks" / "claims"
CLAIMS = sorted(FOLDER.glob("*.toml"))


@pytest.mark.parametrize("path", CLAIMS, ids=lambda path: path.stem)
def test_our_own_files_are_right(path: Path):
    """The sweeps that check the papers' claims, each with its presets by their names."""
    for name, method in create_description(read_description(path)).methods.items():
        find_method(method.preset or name)


def settings_of(claim: str, config: BackboneConfig) -> dict[str, dict[str, Any]]:
    """All settings of each adapter of a claim, of an axis the last value."""
    methods = create_description(read_description(FOLDER / f"{claim}.toml")).methods
    named = {name: (method.preset or name, method.settings) for name, method in methods.items()}
    return {
        name: dict(PRESETS[preset].settings({key: str(values[-1]).lower() for key, values in own.items()}, config))
        for name, (preset, own) in named.items()
        if preset in PRESETS
    }


def test_the_adapters_that_are_compared_have_one_size(bert: Backbone):
    """Compacter section 5.1: bottleneck, activation and trained norms are the same for all."""
    found = settings_of("compacter", bert.config)
    shapes = {(one["bottleneck"], one["activation"], one["norms"]) for one in found.values() if "bottleneck" in one}
    assert shapes == {(24, "gelu_new", True)}


def test_one_expert_is_adamix_without_a_mixture(bert: Backbone):
    """Everything else is the mixture's, or the comparison would be of something else."""
    found = settings_of("adamix", bert.config)
    one, several = found["one-expert"], found["adamix"]
    assert {name for name in several if one[name] != several[name]} == {"experts", "consistency"}
    assert (one["experts"], one["consistency"]) == (1, 0.0)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "key": ({"colour": 1}, "colour is 1: extra inputs are not permitted"),
    "no task": ({"tasks": {}}, "tasks is {}: dictionary should have at least 1 item"),
    "no file": ({"tasks": {"toy": {"train": "x"}}}, "tasks.toy.validation: field required"),
    "task type": ({"tasks": {"toy": TASK | {"task_type": "guess"}}}, "tasks.toy.task_type is 'guess'"),
    "hyper-parameter": ({"methods": {"lora": {"speed": 1}}}, "methods.lora.speed is 1: extra inputs"),
    "number": ({"common": {"epochs": "two"}}, "common.epochs.0 is 'two': input should be a valid integer"),
    "empty axis": ({"common": {"epochs": []}}, "common.epochs is .*at least 1 item"),
    "size": ({"sizes": {"some": {}}}, "size 'some' must be a number of rows above 0, or 'all'"),
    "no rows": ({"sizes": {"0": {}}}, "size '0' must be"),
    "seed": ({"seeds": [-1]}, "seeds.0 is -1: input should be greater than or equal to 0"),
    "merging": (
        {"dev_rows": 5, "methods": {"mix": {"merge_report": True}}},
        "a merge report compares routes on the rows",
    ),
    "text": ({"tasks": {"toy": TASK | {"text": {"tone": 1}}}}, "text has no option 'tone'; it has template"),
    "beams": ({"tasks": {"toy": TASK | {"text": {"num_beams": "x"}}}}, "tasks.toy.text.num_beams is 'x': input should"),
    "tokens": ({"tasks": {"toy": TASK | {"text": {"max_new_tokens": {"x": 1}}}}}, "tasks.toy.text.max_new_tokens is"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_named(change: dict[str, Any], message: str):
    with pytest.raises(TrainingError, match=f"the sweep is invalid: .*{message}"):
        create_description(described(**change))


def test_every_mistake_is_said_at_once():
    """Nobody should mend a file one call at a time."""
    with pytest.raises(TrainingError, match=r"seeds.0 is -1: .*; colour is 1: "):
        create_description(described(colour=1, seeds=[-1]))


def test_an_unreadable_file_is_refused(tmp_path: Path):
    with pytest.raises(TrainingError, match=r"nowhere.toml cannot be read: No such file"):
        read_description(tmp_path / "nowhere.toml")
    (tmp_path / "bad.toml").write_text("seeds = ")
    with pytest.raises(TrainingError, match=r"bad.toml is not TOML: Invalid value"):
        read_description(tmp_path / "bad.toml")


FILE: dict[str, Any] = {
    "seeds": [0, 1, 2],
    "tasks": {"a": {"train": "a"}, "b": {"train": "b"}},
    "methods": {"mine": {"preset": "lora", "epochs": 3, "settings": {"rank": 4, "alpha": 8}}, "bitfit": {}},
    "sizes": {"100": {"epochs": 20}, "all": {}},
}


def test_without_flags_the_file_stands():
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
WRONG_FLAGS: dict[str, tuple[Flags, dict[str, Any], str]] = {
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


@pytest.mark.parametrize(("flags", "tables", "message"), WRONG_FLAGS.values(), ids=WRONG_FLAGS)
def test_wrong_flags_are_refused(flags: Flags, tables: dict[str, Any], message: str):
    with pytest.raises(TrainingError, match=message):
        flags.over(tables)
