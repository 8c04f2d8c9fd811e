"""The papers' hyper-parameters by name, from `recipes/BACKBONE/BENCHMARK.toml`.

A name is PRESET/BACKBONE/BENCHMARK, such as `compacter/t5-base/glue`, with an optional task as the fourth word. A run
whose task is part of the benchmark gets that task's recipe by default.

Flags override the recipe, and the recipe overrides defaults.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from peltier_adapters.presets.baselines import find_method
from peltier_adapters.presets.composition import Setting
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import BackboneConfig, load_config
from pydantic import BaseModel, ConfigDict
from rich.console import Console
from rich.table import Table

from peltier_training.config.run import Run
from peltier_training.config.task_options import find_template
from peltier_training.errors import TrainingError

_FOLDER = "recipes"


class RecipeLayer(BaseModel):
    """Some hyper-parameters of a run; other layers fill in what is None."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    learning_rate: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    max_length: int | None = None
    warmup: float | None = None
    weight_decay: float | None = None
    patience: int | None = None
    seed: int | None = None
    metric: str | None = None
    template: str | None = None
    settings: dict[str, Setting] = {}


class RecipeMethod(RecipeLayer):
    """The hyper-parameters of a preset, and of its single tasks."""

    tasks: dict[str, RecipeLayer] = {}


class RecipeFile(BaseModel):
    """One backbone on one benchmark. Later layers win: `common`, the task, the method, the method on the task.

    `refusal` is the reason why recipes that are only documented cannot be run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    source: str
    backbone: str
    refusal: str | None = None
    common: RecipeLayer
    methods: dict[str, RecipeMethod]
    tasks: dict[str, RecipeLayer]


@dataclass(frozen=True)
class Recipe:
    """What a run takes if its flags give nothing else. `settings` of the preset are texts; `template` is for a T5."""

    name: str = ""
    source: str = ""
    preset: str = "compacter"
    backbone: str = "minilm"
    task: str | None = None
    template: str | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


NO_RECIPE = Recipe()


def find_recipe(name: str, task: str) -> Recipe:
    """The recipe called `name`, for the task in the name, or for `task` if the benchmark has it.

    Raises a `TrainingError` that lists similar names of an unknown recipe, or says why a recipe cannot be run.
    """
    words = name.split("/")
    short = "/".join(words[:3])
    if short not in recipe_names() or len(words) > 4:
        near = get_close_matches(name, recipe_names(), n=3, cutoff=0.0)
        raise TrainingError(f"recipe {name!r} is unknown; similar names are {', '.join(near)}")
    preset, file = words[0], _files()["/".join(words[1:3])]
    if file.refusal is not None:
        raise TrainingError(f"recipe {short!r} cannot be run: {file.refusal}")
    if len(words) == 4 and words[3] not in file.tasks:
        raise TrainingError(f"recipe {short!r} has no task {words[3]!r}; it has {', '.join(file.tasks)}")
    chosen = words[-1] if len(words) == 4 else task if task in file.tasks else None
    values, settings = _merged(file, preset, chosen)
    template = values.pop("template", None)
    return Recipe(name, file.source, preset, file.backbone, chosen, template, values, settings)


def _merged(file: RecipeFile, preset: str, task: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    method = file.methods[preset]
    layers = [
        file.common,
        file.tasks.get(task or "", RecipeLayer()),
        method,
        method.tasks.get(task or "", RecipeLayer()),
    ]
    values: dict[str, Any] = {}
    settings: dict[str, str] = {}
    for layer in layers:
        values |= layer.model_dump(exclude_none=True, exclude={"settings", "tasks"})
        settings |= {name: str(value) for name, value in layer.settings.items()}
    return values, settings


@cache
def recipe_names() -> tuple[str, ...]:
    """All recipes, PRESET/BACKBONE/BENCHMARK."""
    return tuple(f"{preset}/{path}" for path, file in _files().items() for preset in file.methods)


@cache
def _files() -> dict[str, RecipeFile]:
    """Every file, as BACKBONE/BENCHMARK."""
    folders = sorted((files(__package__) / _FOLDER).iterdir(), key=lambda folder: folder.name)
    return {
        f"{folder.name}/{file.name.removesuffix('.toml')}": RecipeFile.model_validate(
            tomllib.loads(file.read_text(encoding="utf-8"))
        )
        for folder in folders
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
    }


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
