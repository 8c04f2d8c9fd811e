"""Requests about trainings, and the examples that they learn from."""

import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, NamedTuple, TypedDict
from urllib.parse import quote

import httpx2

from peltier_client.errors import InvalidInput, TrainingFailed
from peltier_client.exchange.request import Request, new_key, raise_unless_events, reader, to_json
from peltier_client.exchange.training_events import EventReader
from peltier_client.protocol.names import check_name
from peltier_client.protocol.trainings import MAX_INLINE_EXAMPLES, TrainedType, Training, TrainingRequest
from peltier_client.resources.rollouts import GuardOptions

Examples = Iterable[Mapping[str, Any]] | str | PathLike[str]
# What happens to the trained adapter.
_PUBLISHING: tuple[Literal["alias", "guard"], ...] = ("alias", "guard")
FileKey = Literal["file_id", "validation_file_id"]
# Longer examples are sent as a file, because servers bound the size of other bodies.
_MAX_INLINE_BYTES = 1024 * 1024


class TrainingOptions(TypedDict, total=False):
    """How to learn, as keyword arguments. What is left out the server chooses.

    `settings` has the names of `peltier train`: hyper-parameters (`epochs`, `learning_rate`, `batch_size`) and settings
    of the preset, and for a multilabel task `label_separator`. `budget` is `{"steps": 500}` or `{"minutes": 10}`.
    `alias` is pointed to the version that is published; with a `guard`, such as `{"shadow": True}`, a guarded change of
    the alias tries it first. The server deletes the examples when the training ends, unless it fails or
    `keep_examples` is true.
    """

    task_type: TrainedType | None
    preset: str | None
    recipe: str | None
    settings: Mapping[str, bool | int | float | str] | None
    seed: int | None
    budget: Mapping[str, float] | None
    alias: str | None
    guard: GuardOptions | None
    text_columns: Sequence[str] | None
    label_column: str | None
    labels: Sequence[str] | None
    keep_examples: bool


class TrainingSources(TypedDict, total=False):
    """Where the examples are: rows in `examples` or the uploaded file `file_id`; and the validation rows, the file of
    them, or their share of the examples. With `owns_files` the files are deleted with the training."""

    examples: Sequence[Mapping[str, Any]]
    file_id: str
    validation: Sequence[Mapping[str, Any]]
    validation_file_id: str
    validation_share: float
    owns_files: bool


class NewTraining(TrainingSources, TrainingOptions, total=False):
    """A training to begin, as keyword arguments. See `peltier_client.protocol.trainings.TrainingRequest`."""


class Upload(NamedTuple):
    """A file to upload: its path, or its bytes and their name."""

    content: str | PathLike[str] | bytes
    name: str | None = None


class Sources(NamedTuple):
    """Where the examples of a training are: what is sent with it, and the files to upload before it."""

    inline: TrainingSources
    uploads: Mapping[FileKey, Upload]


def read_sources(examples: Examples, validation: Examples | float | None) -> Sources:
    """How to send examples: few rows with the training, more of them as a JSONL file, and a path as that file.

    A number as `validation` is the share of the examples.
    """
    inline, uploads = TrainingSources(), dict[FileKey, Upload]()
    found = _read_rows(examples, "examples")
    if isinstance(found, Upload):
        uploads["file_id"] = found
    else:
        inline["examples"] = found
    if isinstance(validation, int | float):
        inline["validation_share"] = validation
    elif validation is not None:
        found = _read_rows(validation, "validation")
        if isinstance(found, Upload):
            uploads["validation_file_id"] = found
        else:
            inline["validation"] = found
    return Sources(inline, uploads)


def _read_rows(rows: Examples, what: str) -> Sequence[Mapping[str, Any]] | Upload:
    if isinstance(rows, str | PathLike):
        return Upload(rows)
    if isinstance(rows, Mapping | bytes):
        raise InvalidInput(f"{what} is of the type {type(rows).__name__}; it must be rows, or the path of a file")
    given = list(rows)
    lines = [_to_line(what, number, row) for number, row in enumerate(given)]
    if len(given) <= MAX_INLINE_EXAMPLES and sum(map(len, lines)) <= _MAX_INLINE_BYTES:
        return given
    return Upload(b"".join(lines), f"{what}.jsonl")


def _to_line(what: str, number: int, row: object) -> bytes:
    if not isinstance(row, Mapping):
        raise InvalidInput(f"row {number} of {what} is {row!r:.80}; it must be a mapping of columns to values")
    try:
        return f"{json.dumps(dict(row), ensure_ascii=False, allow_nan=False)}\n".encode()
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"row {number} of {what} cannot be sent as JSON: {error}") from error


def create_training(task: str, options: NewTraining) -> Request[Training]:
    """Queue a training, once however often the request is sent."""
    given = {name: value for name, value in options.items() if value is not None and name not in _PUBLISHING}
    wanted = {name: options[name] for name in _PUBLISHING if options.get(name) is not None}
    publish = {"publish": wanted} if wanted else {}
    json = to_json(TrainingRequest, {"task": check_name(task), **given, **publish})
    return Request("POST", "/v1/trainings", reader(Training), json=json, headers=new_key())


def read_events(training_id: str, after: int) -> Request[EventReader]:
    """Open the events after the one with the id `after`; the response's head is read into a reader of them."""

    def read(response: httpx2.Response) -> EventReader:
        if response.status_code == httpx2.codes.NO_CONTENT:
            return EventReader(is_complete=True)
        raise_unless_events(response)
        return EventReader()

    headers = {"accept": "text/event-stream"} | ({"last-event-id": str(after)} if after else {})
    return Request("GET", f"{training_path(training_id)}/events", read, headers=headers)


def succeeded(training: Training) -> Training:
    """`training` if it has succeeded. Raises `TrainingFailed` with the reason of one that failed or was cancelled."""
    if training.status == "succeeded":
        return training
    reason = f": {training.reason}" if training.reason else ""
    how = "was cancelled" if training.status == "cancelled" else "failed"
    raise TrainingFailed(f"training {training.id} of {training.task} {how}{reason}")


def training_path(training_id: str) -> str:
    """The address of a training."""
    if not training_id:
        raise InvalidInput("the id of the training is empty")
    return f"/v1/trainings/{quote(training_id, safe='')}"
