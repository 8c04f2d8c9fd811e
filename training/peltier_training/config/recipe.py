"""The papers' hyper-parameters, by name: `compacter/t5-base/glue` is a preset, a backbone and a benchmark; a fourth
word, or the task's own name, is a task of it. The numbers are data, in `recipes/BACKBONE/BENCHMARK.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from peltier_adapters.presets.composition import Setting
from pydantic import BaseModel, ConfigDict

from peltier_training.errors import TrainingError

_FOLDER = "recipes"


class Layer(BaseModel):
    """Some of a run's numbers; what is None is left to others. `warmup` is in steps from 1 on, as a run's is."""

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


class Method(Layer):
    """What a preset adds, and what it adds for single tasks."""

    tasks: dict[str, Layer] = {}


class RecipeFile(BaseModel):
    """One backbone on one benchmark. Later wins: `common`, the task, the method, the method on the task.

    `refusal` is why nothing of it can be run here, of numbers that are kept to be looked up.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    source: str
    backbone: str
    refusal: str | None = None
    common: Layer
    methods: dict[str, Method]
    tasks: dict[str, Layer]


@dataclass(frozen=True)
class Recipe:
    """What a run takes where its flags say nothing. `settings` are the preset's, as texts; `template` is for a T5."""

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
    """The recipe called `name`, for the task that the name ends in or else for `task` if the benchmark has it.

    A `TrainingError` answers an unknown name with those near it, and says why a known one cannot be run.
    """
    words = name.split("/")
    short = "/".join(words[:3])
    if short not in recipe_names() or len(words) > 4:
        near = get_close_matches(name, recipe_names(), n=3, cutoff=0.0)
        raise TrainingError(f"recipe {name!r} is unknown; near it are {', '.join(near)}")
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
    layers = [file.common, file.tasks.get(task or "", Layer()), method, method.tasks.get(task or "", Layer())]
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
    folders = sorted((folder for folder in (files(__package__) / _FOLDER).iterdir()), key=lambda one: one.name)
    return {
        f"{folder.name}/{file.name.removesuffix('.toml')}": RecipeFile.model_validate(tomllib.loads(file.read_text()))
        for folder in folders
        for file in sorted(folder.iterdir(), key=lambda one: one.name)
    }
