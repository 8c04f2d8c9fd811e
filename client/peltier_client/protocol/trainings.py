"""Trainings and their files on the wire."""

import math
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, FiniteFloat, JsonValue, StrictBool, StrictInt, model_validator

from peltier_client.protocol.names import Name
from peltier_client.protocol.predict import is_none, state_rule
from peltier_client.protocol.rollouts import RolloutGuard
from peltier_client.protocol.wire import OpenAIPage, RequestModel, ResponseModel

TrainedType = Literal[
    "classification", "multilabel", "regression", "text2text", "token-classification", "span", "embedding", "ranking",
    "sparse-embedding", "multi-vector-embedding",
]  # fmt: skip
TrainingStatus = Literal["queued", "running", "paused", "evaluating", "publishing", "succeeded", "failed", "cancelled"]
EventKind = Literal["state", "preflight", "progress", "checkpoint", "message"]
FilePurpose = Literal["fine-tune", "batch"]
RowFormat = Literal["columns", "chat"]

# The states in which a training stays for good.
ENDED: frozenset[TrainingStatus] = frozenset({"succeeded", "failed", "cancelled"})
MAX_INLINE_EXAMPLES = 10_000
MAX_TRAINING_STEPS = 10_000_000
MAX_TRAINING_MINUTES = 7 * 24 * 60
MAX_COLUMNS = 64
MAX_SETTINGS = 64
MAX_TRAINED_LABELS = 1000
MAX_MULTIPLIER = 1000.0
# A row is an object with texts, labels, and lists of both.
MAX_ROW_DEPTH = 8
# Of the name of a column, a label, a preset or a setting, and of the value of a setting.
MAX_WORD_LEN = 256

Word = Annotated[str, Field(min_length=1, max_length=MAX_WORD_LEN)]
Label = Word
Column = Word
TextColumns = Annotated[list[Column], Field(min_length=1, max_length=3)]
TrainingSeed = Annotated[StrictInt, Field(ge=0, lt=2**32)]
FileId = Annotated[str, Field(min_length=1, max_length=64)]
Row = Annotated[dict[str, JsonValue], Field(min_length=1, max_length=MAX_COLUMNS)]
Rows = Annotated[list[Row], Field(min_length=1, max_length=MAX_INLINE_EXAMPLES)]
Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]
SettingValue = Annotated[
    StrictBool | StrictInt | FiniteFloat | Annotated[str, Field(max_length=MAX_WORD_LEN)],
    state_rule(f"must be true or false, a finite number, or a text of at most {MAX_WORD_LEN} characters"),
]


class TrainingBudget(RequestModel):
    """How long a training may take: a number of steps, or minutes of a worker. Exactly one of them."""

    steps: Annotated[StrictInt, Field(ge=1, le=MAX_TRAINING_STEPS)] | None = None
    minutes: Annotated[float, Field(gt=0, le=MAX_TRAINING_MINUTES, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.steps is None) == (self.minutes is None):
            raise ValueError("a budget has steps or minutes, exactly one of them")
        return self


class PublishOptions(RequestModel):
    """What happens to the trained adapter: it becomes the next version of its task, and with `alias` that alias
    then means it. With a `guard` too, the version is first tried as the candidate of a guarded change of the alias; an
    alias that does not exist yet means it at once."""

    alias: Name | None = None
    guard: RolloutGuard | None = None

    @model_validator(mode="after")
    def _check_alias(self) -> Self:
        if self.alias is not None and self.alias.isdecimal():
            raise ValueError(f"alias {self.alias!r} is not allowed: a number means a version")
        if self.guard is not None and self.alias is None:
            raise ValueError("a guard needs the alias that it guards")
        return self


class TrainingRequest(RequestModel):
    """A training to begin: the examples of a task, and how to learn them. What is left out the server chooses.

    The examples are rows in `examples`, as objects with a text column and a label column, or the uploaded file
    `file_id`. The validation rows are `validation`, the file `validation_file_id`, or the share `validation_share` of
    the examples. `settings` has the names of `peltier train`: the hyper-parameters (`epochs`, `learning_rate`,
    `batch_size`) and the settings of the preset. A `recipe` names the published values of a paper. `labels` names
    integer labels in order. Rows that were sent inline are deleted when the training ends, unless `keep_examples` is
    true. With `owns_files` the uploaded files are treated in the same way, and no other training may use them.
    """

    task: Name
    task_type: TrainedType | None = None
    preset: Word | None = None
    recipe: Word | None = None
    settings: Annotated[dict[Word, SettingValue], Field(max_length=MAX_SETTINGS)] = Field(default_factory=dict)
    examples: Rows | None = None
    file_id: FileId | None = None
    validation: Rows | None = None
    validation_file_id: FileId | None = None
    validation_share: Annotated[float, Field(gt=0, le=0.9, allow_inf_nan=False)] | None = None
    text_columns: TextColumns | None = None
    label_column: Column | None = None
    labels: Annotated[list[Label], Field(min_length=1, max_length=MAX_TRAINED_LABELS)] | None = None
    seed: TrainingSeed | None = None
    budget: TrainingBudget | None = None
    publish: PublishOptions | None = None
    keep_examples: StrictBool = False
    owns_files: StrictBool = False
    format: RowFormat = "columns"
    learning_rate_multiplier: Annotated[float, Field(gt=0, le=MAX_MULTIPLIER, allow_inf_nan=False)] | None = None
    metadata: Metadata | None = None

    @model_validator(mode="after")
    def _check_sources(self) -> Self:
        if (self.examples is None) == (self.file_id is None):
            raise ValueError("a training has examples or file_id, exactly one of them")
        wanted = ("validation", "validation_file_id", "validation_share")
        names = [name for name in wanted if getattr(self, name) is not None]
        if len(names) > 1:
            raise ValueError(f"a training has {' and '.join(names)}; it can have only one of them")
        return self

    @model_validator(mode="after")
    def _check_rows(self) -> Self:
        for name in ("examples", "validation"):
            for number, row in enumerate(getattr(self, name) or ()):
                if problem := row_problem(row):
                    raise ValueError(f"row {number} of {name} {problem}")
        return self


def row_problem(row: dict[str, Any]) -> str | None:
    """Why `row` cannot be an example, in words that follow its name; None if it can be one."""
    for value, depth in _values(row, 0):
        if depth > MAX_ROW_DEPTH:
            return f"nests values deeper than {MAX_ROW_DEPTH} levels"
        if isinstance(value, float) and not math.isfinite(value):
            return f"has the number {value}, which is not finite"
    return None


def _values(value: Any, depth: int) -> Iterator[tuple[Any, int]]:
    """Every value in `value` with its depth; it stops one level below the deepest allowed one."""
    yield value, depth
    if depth > MAX_ROW_DEPTH:
        return
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        yield from _values(child, depth + 1)


class TrainingProgress(ResponseModel):
    """How far a training is. `value` is that of `metric` after the last evaluation, `best` the best so far, and
    `best_step` the step that is kept: among equal ones that with the lowest loss."""

    step: int | None = None
    max_steps: int | None = None
    epoch: float | None = None
    loss: float | None = None
    metric: str | None = None
    value: float | None = None
    best: float | None = None
    best_step: int | None = None
    learning_rate: float | None = None
    seconds_left: float | None = None


class TrainingCost(ResponseModel):
    """What a training has taken: the seconds that workers spent on it."""

    seconds: float


class TrainingSummary(ResponseModel):
    """A training in a list: about a kilobyte, however many labels its task has. `Training` has its request too.

    `reason` says why it failed or what stopped it. `adapter` is the published version, such as `sst2@3`. `wish` is what
    was asked for and is not done yet. `seconds_left` is an estimate while it runs, and null without one. `task_type`,
    `preset` and `recipe` are those of the request.
    """

    id: str
    task: str
    task_type: str | None = None
    preset: str | None = None
    recipe: str | None = None
    status: TrainingStatus
    wish: Literal["pause", "cancel"] | None = None
    reason: str | None = None
    adapter: str | None = None
    progress: TrainingProgress | None = None
    metrics: dict[str, float | None] | None = None
    cost: TrainingCost
    seconds_left: float | None = None
    attempts: int = 0
    file_id: str | None = None
    validation_file_id: str | None = None
    created_at: datetime
    created_by: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens to it."""
        return self.status in ENDED


class Training(TrainingSummary):
    """A training and its state. `request` is what was sent without the examples, and `preflight` reports on the rows
    before the first step."""

    preflight: dict[str, Any] | None = None
    request: dict[str, Any] = Field(default_factory=dict)


class TrainingList(ResponseModel):
    """A page of trainings, newest first; `next_cursor` is that of the next page, null on the last."""

    trainings: list[TrainingSummary]
    next_cursor: str | None = None


class TrainingEvent(ResponseModel):
    """Something that happened to a training. `id` grows with time, and is the event's id in a stream too."""

    id: int
    at: datetime
    kind: EventKind
    message: str
    data: dict[str, Any] = Field(default_factory=dict)


class File(ResponseModel):
    """Examples, or requests or results of a batch, in the shape of OpenAI's API: `created_at` is in seconds since 1970.

    `is_inline` marks the rows that were sent with a training, and files that one owns. They are deleted with it.
    """

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"
    rows: int
    is_inline: Annotated[bool | None, Field(exclude_if=is_none)] = None


class FileList(OpenAIPage[File]):
    """A page of files, newest first. `last_id` is the `after` of the next page if `has_more` is true."""


class FileDeleted(ResponseModel):
    """A file is deleted."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True
