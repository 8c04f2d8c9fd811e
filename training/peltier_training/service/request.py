"""From the request of a training to its run within a budget. Imports no torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from peltier_adapters.presets.baselines import BASELINES, find_method
from peltier_adapters.spec.lora import ALL_LINEAR
from peltier_adapters.spec.tasks import EMBEDDING_TYPES, TaskType
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import BackboneConfig, load_config
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic import Field as Bounds

from peltier_training.config.preparation import Prepared, default_rate, fill_in, prepare
from peltier_training.config.recipe import GivenValue, ResolvedChoice
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.config.task_options import LABEL_TARGETS, EmbeddingOptions, TextOptions
from peltier_training.data.data import LABEL_COLUMN, Data
from peltier_training.errors import TrainingError, shown
from peltier_training.service.examples import split_file
from peltier_training.service.memory_check import pass_bytes

DEFAULT_SHARE = 0.2
CHECKPOINTS = Path("run")
# A request names the seed beside its settings; the other two follow from the number of rows.
_NO_SETTINGS = ("seed", "validation_interval", "open_end", "max_steps")
# What a tenant may ask for at most, so that one training neither fills the memory nor a log.
_MOST = {"batch_size": 1_024, "epochs": 10_000, "patience": 10_000}
_MAX_SETTINGS = 100
_COLUMNS: Mapping[TaskType, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(EMBEDDING_TYPES, (("text", "pair"), LABEL_COLUMN)),
    "ranking": (("query", "document"), LABEL_COLUMN),
    "span": (("question", "context"), "answers"),
}
T = TypeVar("T")


class Budget(BaseModel):
    """The most steps or minutes of a training."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    steps: Annotated[int, Bounds(ge=1, le=10_000_000)] | None = None
    minutes: Annotated[float, Bounds(gt=0, le=100_000, allow_inf_nan=False)] | None = None


class RequestedTraining(BaseModel):
    """What the worker reads of a training's request; other keys are for the server."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    task: str
    task_type: TaskType = "classification"
    preset: str | None = None
    recipe: str | None = None
    settings: Annotated[dict[str, Any], Bounds(max_length=_MAX_SETTINGS)] = {}
    validation_share: Annotated[float, Bounds(gt=0, lt=1)] = DEFAULT_SHARE
    seed: Annotated[int, Bounds(ge=0)] = 0
    budget: Budget = Budget()
    text_columns: tuple[str, ...] | None = None
    label_column: str | None = None
    labels: tuple[str, ...] | None = None
    format: Literal["columns", "chat"] = "columns"
    learning_rate_multiplier: Annotated[float, Bounds(gt=0, allow_inf_nan=False)] | None = None

    @classmethod
    def read(cls, request: Mapping[str, Any]) -> "RequestedTraining":
        """Raises a `TrainingError` that names the first invalid value."""
        given = {name: value for name, value in request.items() if value is not None}
        try:
            found = cls.model_validate(given)
        except ValidationError as error:
            raise TrainingError(_explain(error, "the request")) from None
        if found.budget.steps is not None and found.budget.minutes is not None:
            raise TrainingError("the budget has steps and minutes; it has one of them")
        return found

    def data(self, train: Path, validation: Path) -> Data:
        """The files with their columns."""
        texts, label = _COLUMNS.get(self.task_type, (("text",), LABEL_COLUMN))
        separator = self.settings.get("label_separator")
        return Data(
            train,
            validation,
            self.text_columns or texts,
            self.label_column or label,
            labels=self.labels,
            label_separator=None if separator is None else str(separator) or None,
        )


@dataclass(frozen=True)
class Machine:
    """What a worker trains with, the same for all trainings."""

    backbone: str
    device: str = "auto"
    dtype: str = "float32"
    threads: int | None = None


def create_run(request: RequestedTraining, data: Data, machine: Machine, *, resume: bool = False) -> Run:
    """The run of a request in the current directory. Raises a `TrainingError` or an `AdapterError` for what it asks
    for and does not exist."""
    choice = ResolvedChoice.find(request.recipe, request.task, request.preset, machine.backbone)
    if choice.preset in BASELINES:
        raise TrainingError(
            f"preset {choice.preset!r} changes the backbone's weights, so it leaves no adapter to publish"
        )
    config = _config(choice.backbone)
    numbers, text, embedding, overrides = _divide(request, choice, config)
    given = GivenValue({**numbers, "seed": request.seed}, overrides, text.get("template"))
    hyperparameters = _create(Hyperparameters, choice.numbers(given))
    if request.learning_rate_multiplier is not None:
        rate = hyperparameters.learning_rate or default_rate(choice.preset, request.task_type, config)
        hyperparameters = replace(hyperparameters, learning_rate=rate * request.learning_rate_multiplier)
    if str(text.get("targets")).endswith(".json"):
        name = LABEL_TARGETS if LABEL_TARGETS in request.settings else "targets"
        raise TrainingError(f"{name} is {shown(text['targets'])}; it must be digits, words or texts, not a file's name")
    for name, most in _MOST.items():
        if (getattr(hyperparameters, name) or 0) > most:
            raise TrainingError(f"{name} is {getattr(hyperparameters, name)}; it must be at most {most:,}")
    return Run(
        task=request.task,
        task_type=request.task_type,
        preset=choice.preset,
        backbone=choice.backbone,
        data=data,
        output=Path("adapter.safetensors"),
        directory=CHECKPOINTS,
        hyperparameters=hyperparameters,
        text=_create(TextOptions, {**text, "template": choice.template(given)}),
        embedding=_create(EmbeddingOptions, embedding),
        overrides=choice.settings(given),
        device=machine.device,
        dtype=machine.dtype,
        threads=machine.threads,
        resume=resume,
        writes_events=False,
        pass_bytes=pass_bytes(machine.device),
    )


def _divide(
    request: RequestedTraining, choice: ResolvedChoice, config: BackboneConfig
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, str]]:
    """Hyper-parameters, options of a T5, options of an embedding, and the preset's settings as texts."""
    preset = sorted(find_method(choice.preset).settings({}, config))
    if config.generates:
        _check_targets(request.settings, choice.preset, has_maps="targets" in preset)
    _check_label_targets(request, config)
    groups = [_names(kind) for kind in (Hyperparameters, TextOptions, EmbeddingOptions)]
    found: tuple[dict[str, Any], dict[str, Any], dict[str, Any]] = ({}, {}, {})
    overrides: dict[str, str] = {}
    for given, value in request.settings.items():
        if value is None or given == "label_separator":
            continue
        name = "targets" if given == LABEL_TARGETS else given
        place = next((place for place, names in enumerate(groups) if name in names), None)
        if given in preset:
            overrides[name] = _text(name, value)
        elif place is not None:
            found[place][name] = ",".join(map(str, value)) if isinstance(value, list) else value
        else:
            known = [*(name for names in groups for name in names), LABEL_TARGETS]
            raise TrainingError(_unknown(name, choice.preset, preset, known))
    return (*found, overrides)


def _check_targets(settings: Mapping[str, Any], preset: str, *, has_maps: bool) -> None:
    """Refuse `targets` on a T5 that are no maps of a preset that has maps, or the texts of labels given twice."""
    targets = settings.get("targets")
    if targets is None:
        return
    if not has_maps:
        if settings.get(LABEL_TARGETS) is not None:
            raise TrainingError(
                f"targets and {LABEL_TARGETS} are given, and with preset {preset!r} both are the texts of labels; give "
                "one of them"
            )
        return
    names = [name.strip() for name in _text("targets", targets).split(",")]
    wrong = next((name for name in names if name not in ALL_LINEAR and names != ["all-linear"]), None)
    if wrong is not None:
        raise TrainingError(
            f"targets is {shown(targets)}, and preset {preset!r} has no map {shown(wrong)}; its maps are "
            f"{', '.join(ALL_LINEAR)}, or all-linear, and the texts of labels are {LABEL_TARGETS}"
        )


def _check_label_targets(request: RequestedTraining, config: BackboneConfig) -> None:
    """Refuse them, by their name in a request, where there are none."""
    if request.settings.get(LABEL_TARGETS) is None:
        return
    if not config.generates:
        raise TrainingError(f"{LABEL_TARGETS} is an option of T5; this backbone is of the family {config.family}")
    if request.task_type != "classification":
        raise TrainingError(f"{LABEL_TARGETS} is for classification; the task type is {request.task_type}")


def _config(backbone: str) -> BackboneConfig:
    return load_config(find_checkpoint(backbone, config_only=True))


def _names(kind: type[Any]) -> list[str]:
    described: Sequence[Field[Any]] = fields(kind)
    return [field.name for field in described if field.name not in _NO_SETTINGS]


def _unknown(name: str, preset: str, own: Sequence[str], known: Sequence[str]) -> str:
    near = get_close_matches(name, [*own, *known], 1)
    nearest = f", the nearest is {near[0]!r}" if near else ""
    return (
        f"setting {shown(name)} is unknown{nearest}; preset {preset!r} has {', '.join(own)}, and every training has "
        f"{', '.join(known)}"
    )


def _text(name: str, value: Any) -> str:
    """A setting of a preset as on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        return ",".join(map(str, value))
    if not isinstance(value, str | int | float):
        raise TrainingError(f"setting {name!r} is {shown(value)}; it must be a number, a text, or true or false")
    return str(value)


def _create(kind: type[T], values: Mapping[str, Any]) -> T:
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        raise TrainingError(_explain(error, "the settings")) from None


def _explain(error: ValidationError, whole: str) -> str:
    first = error.errors()[0]
    place = ".".join(part for part in first["loc"] if isinstance(part, str))
    rule = first["msg"].removeprefix("Value error, ")
    return f"{place or whole} is {shown(first['input'])}: {rule[:1].lower()}{rule[1:]}"


def prepare_request(
    request: RequestedTraining, train: Path, validation: Path | None, machine: Machine, *, resume: bool = False
) -> Prepared:
    """The run of a request with its files in the current directory; without `validation` a share of the others
    validates. Raises a `TrainingError` or an `AdapterError`, about the request before any row is read."""
    data = request.data(train, validation or train)
    run = create_run(request, data, machine, resume=resume)
    run.check()
    if validation is None:
        data = split_file(data, request.task_type, request.validation_share, request.seed)
        run = replace(run, data=data)
    return within_steps(run, prepare(run), request.budget.steps)


def within_steps(asked: Run, prepared: Prepared, steps: int | None) -> Prepared:
    """The run whose schedule ends at step `steps`, if it would be longer: the learning rate falls until then.

    `asked` is the run before its defaults were filled in."""
    run, rows = prepared.run, len(prepared.data.train.examples)
    per_epoch = math.ceil(rows / run.batch_size)
    if steps is None or steps >= run.epochs * per_epoch:
        return prepared
    filled = run.hyperparameters
    numbers = replace(
        asked.hyperparameters,
        metric=filled.metric,
        batch_size=filled.batch_size,
        epochs=math.ceil(steps / per_epoch),
        max_steps=steps,
        eval_rows=filled.eval_rows,
        validation_interval=filled.validation_interval,
    )
    config = load_config(find_checkpoint(run.backbone))
    return replace(prepared, run=fill_in(replace(run, hyperparameters=numbers), config, rows))
