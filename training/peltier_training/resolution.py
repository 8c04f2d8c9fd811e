"""What a training run is made of: flags first, then the recipe, then defaults."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from peltier_adapters.baselines import find_method
from peltier_backbone.checkpoint import find_checkpoint
from peltier_backbone.config import BackboneConfig, load_config
from rich.console import Console
from rich.table import Table

from peltier_training.errors import TrainingError
from peltier_training.recipe import NO_RECIPE, Recipe, find_recipe
from peltier_training.run import Run


@dataclass(frozen=True)
class Choice:
    """A recipe, and the preset and backbone that a run takes."""

    recipe: Recipe
    preset: str
    backbone: str

    @classmethod
    def find(cls, name: str | None, task: str, preset: str | None, backbone: str | None) -> "Choice":
        """The recipe called `name`, or none; a flag for another preset than the recipe's is refused."""
        recipe = NO_RECIPE if name is None else find_recipe(name, task)
        if name is not None and preset not in (None, recipe.preset):
            raise TrainingError(f"recipe {name!r} is of preset {recipe.preset!r}, and --preset is {preset!r}")
        return cls(recipe, preset or recipe.preset, backbone or recipe.backbone)

    def numbers(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Hyper-parameters that are not left to their defaults; `given` holds None for flags that are not there."""
        return {**self.recipe.hyperparameters, **{name: value for name, value in given.items() if value is not None}}

    def template(self) -> str | None:
        """The recipe's, where the backbone reads templates."""
        return self.recipe.template if self.recipe.template and self.config().generates else None

    def config(self) -> BackboneConfig:
        """The backbone's."""
        return load_config(find_checkpoint(self.backbone, config_only=True))


def print_resolved(run: Run, choice: Choice, given: Mapping[str, Any]) -> None:
    """Every number of the run and where it is from, on standard error."""
    recipe, config = choice.recipe, choice.config()
    resolved = run.resolved(config)
    settings = find_method(run.preset).settings(run.overrides, config)
    task = "" if recipe.task is None else f", task {recipe.task}"
    console = Console(stderr=True)
    console.print(f"recipe {recipe.name}: {recipe.source}{task}", soft_wrap=True)
    table = Table("what", "value", "from")
    table.add_row("preset", run.preset, "recipe")
    table.add_row("backbone", run.backbone, "recipe" if run.backbone == recipe.backbone else "flag")
    for name, value in {**asdict(resolved.hyperparameters), "metric": resolved.metric}.items():
        if value is not None:
            table.add_row(name, f"{value}", _origin(given.get(name) is not None, name in recipe.hyperparameters))
    if resolved.text.template is not None:
        table.add_row("template", resolved.text.template, _origin(choice.template() != run.text.template, True))
    for name, value in settings.items():
        flagged = name in run.overrides and run.overrides[name] != recipe.settings.get(name)
        table.add_row(f"set {name}", f"{value}", _origin(flagged, name in recipe.settings))
    console.print(table)


def _origin(flagged: bool, in_recipe: bool) -> str:
    return "flag" if flagged else "recipe" if in_recipe else "default"
