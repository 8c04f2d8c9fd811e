"""What a run takes of flags, recipe and defaults, as its table says it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from peltier_training.config.preparation import prepare
from peltier_training.config.resolution import GivenValue, ResolvedChoice, print_resolved
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.config.text_options import TextOptions
from peltier_training.data.data import Data

Read = Callable[[str, str, GivenValue], dict[str, tuple[str, str]]]


@pytest.fixture
def table(toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Read:
    """`table(recipe, backbone, given)`: value and origin of each line that `peltier train` prints."""
    monkeypatch.setenv("COLUMNS", "200")

    def read(recipe: str, backbone: str, given: GivenValue) -> dict[str, tuple[str, str]]:
        choice = ResolvedChoice.find(recipe, "toy", None, backbone)
        files = [toy / f"classification-{part}.jsonl" for part in ("train", "validation")]
        run = Run(
            task="toy",
            task_type="classification",
            preset=choice.preset,
            backbone=backbone,
            data=Data(*files, ("text",), "label"),
            output=tmp_path / "toy.safetensors",
            directory=tmp_path / "run",
            hyperparameters=Hyperparameters(**choice.numbers(given)),
            text=TextOptions(template=choice.template(given)),
            overrides=choice.settings(given),
        )
        print_resolved(prepare(run).run, choice, given)
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("│")]
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
        return {name: (value, origin) for name, value, origin in rows}

    return read


def test_a_default_is_what_the_run_takes(table: Read):
    """MiniLM's pooling file names the mean: neither "auto" nor a flag that nobody gave."""
    found = table("lora/bert-base/glue", "minilm", GivenValue())
    assert found["set pooling"] == ("mean", "default")
    assert found["epochs"] == ("50", "recipe")


def test_a_flag_is_one_whatever_the_recipe_says(table: Read):
    """Also where both name the same value, of a setting and of a number."""
    found = table("lora/bert-base/glue", "minilm", GivenValue({"epochs": 50}, {"rank": "8", "pooling": "first"}))
    origins = {name: found[name][1] for name in ("epochs", "set rank", "set pooling", "set alpha")}
    assert origins == {"epochs": "flag", "set rank": "flag", "set pooling": "flag", "set alpha": "recipe"}


def test_a_template_is_of_a_flag_a_recipe_or_neither(table: Read, t5_directory: Path):
    """A recipe has one for the tasks that its benchmark has."""
    smaller = {"bottleneck": "8"}
    cases = (
        ("/sst2", None, ("sst2", "recipe")),
        ("", None, ("{text}", "default")),
        ("/sst2", "sst2", ("sst2", "flag")),
    )
    for task, template, wanted in cases:
        found = table(f"compacter/t5-base/glue{task}", str(t5_directory), GivenValue({}, smaller, template))
        assert found["template"] == wanted
