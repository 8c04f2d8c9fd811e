"""Resolves the settings of a run: flags override the recipe, and the recipe overrides defaults."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from peltier_adapters.presets.baselines import find_method
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import BackboneConfig, load_config
from rich.console import Console
from rich.table import Table

from peltier_training.config.recipe import NO_RECIPE, Recipe, find_recipe
from peltier_training.config.run import Run
from peltier_training.config.templates import find_template
from peltier_training.errors import TrainingError


@dataclass(frozen=True)
class GivenValue:
    """The flags of a command line: hyper-parameters, settings of the preset, and a T5's template."""

    numbers: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    template: str | None = None


@dataclass(frozen=True)
class ResolvedChoice:
    """The recipe, preset and backbone of a run."""

    recipe: Recipe
    preset: str
    backbone: str

    @classmethod
    def find(cls, name: str | None, task: str, preset: str | None, backbone: str | None) -> "ResolvedChoice":
        """With the recipe called `name`, or none. Raises a `TrainingError` for another preset than the recipe's."""
        recipe = NO_RECIPE if name is None else find_recipe(name, task)
        if name is not None and preset not in (None, recipe.preset):
            raise TrainingError(f"recipe {name!r} is of preset {recipe.preset!r}, and --preset is {preset!r}")
        return cls(recipe, preset or recipe.preset, backbone or recipe.backbone)

    def numbers(self, given: GivenValue) -> dict[str, Any]:
        """The hyper-parameters of the flags and the recipe."""
        return {**self.recipe.hyperparameters, **given.numbers}

    def settings(self, given: GivenValue) -> dict[str, str]:
        """The preset's settings of the flags and the recipe."""
        return {**self.recipe.settings, **given.settings}

    def template(self, given: GivenValue) -> str | None:
        """The given template, or the recipe's if the backbone reads templates."""
        if given.template is not None:
            return given.template
        return self.recipe.template if self.recipe.template and self.config().generates else None

    def config(self) -> BackboneConfig:
        """The configuration of the backbone."""
        return load_config(find_checkpoint(self.backbone, config_only=True))


def print_resolved(run: Run, choice: ResolvedChoice, given: GivenValue) -> None:
    """Print every setting of a resolved run and its origin on stderr."""
    recipe, config = choice.recipe, choice.config()
    settings = find_method(run.preset).settings(run.overrides, config)
    task = "" if recipe.task is None else f", task {recipe.task}"
    console = Console(stderr=True)
    console.print(f"recipe {recipe.name}: {recipe.source}{task}", soft_wrap=True)
    table = Table("what", "value", "from")
    table.add_row("preset", run.preset, "recipe")
    table.add_row("backbone", run.backbone, "recipe" if run.backbone == recipe.backbone else "flag")
    for name, value in {**asdict(run.hyperparameters), "metric": run.metric}.items():
        if value is not None:
            table.add_row(name, f"{value}", _origin(name in given.numbers, name in recipe.hyperparameters))
    if config.generates:
        template = run.text.template or find_template(None, run.data.inputs)
        table.add_row("template", template, _origin(given.template is not None, recipe.template is not None))
    for name, setting in settings.items():
        table.add_row(f"set {name}", f"{setting}", _origin(name in given.settings, name in recipe.settings))
    console.print(table)


def _origin(flagged: bool, in_recipe: bool) -> str:
    return "flag" if flagged else "recipe" if in_recipe else "default"
