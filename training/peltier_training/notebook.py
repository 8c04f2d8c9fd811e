"""Training and prediction in this process, as a notebook does them."""

import html
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, runtime_checkable

from peltier_adapters.artifact.artifact import Artifact, read_artifact
from peltier_adapters.artifact.manifest import Manifest, TaskInput
from peltier_adapters.durable import write_file
from peltier_adapters.hub.address import parse_repository
from peltier_adapters.spec.tasks import TaskType
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_client import Client
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.protocol.adapters import UploadedVersion
from peltier_store.sources.push import PushOptions, push_artifact

from peltier_training.data.data import Data, read_file
from peltier_training.data.label_names import label_name
from peltier_training.errors import TrainingError, refuse, shown
from peltier_training.evaluate.adapters import evaluate
from peltier_training.evaluate.answering import answer_all
from peltier_training.fit.preflight import Preflight
from peltier_training.report.page import report_paths
from peltier_training.service.callbacks import Deadline
from peltier_training.service.request import DEFAULT_SHARE, Machine, RequestedTraining, prepare_request
from peltier_training.train import finish, learn


@runtime_checkable
class DataFrame(Protocol):
    """A pandas or polars DataFrame. Neither library is needed."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, name: str, /) -> Any: ...


# The types of missing values in pandas, which need not be installed.
_MISSING = ("NAType", "NaTType")
_SHOWN_METRICS = 4

Examples = Path | str | DataFrame | Iterable[Mapping[str, Any]] | Iterable[tuple[Any, ...]]


def write_rows(examples: Examples, path: Path, columns: Sequence[str]) -> Path:
    """The file of the examples: they themselves if they are a file, else `path`, which becomes their JSONL.

    Rows are mappings, or tuples of the values of `columns`. Raises a `TrainingError` for anything else.
    """
    if isinstance(examples, str | Path):
        return Path(examples).resolve()
    with path.open("w", encoding="utf-8", errors="surrogatepass") as file:  # the reader names a row that is no text
        for number, row in enumerate(_rows(examples), 1):
            file.write(_line(_values(row, columns, number), number))
    return path


def short_name(path: Path, folder: Path) -> Path:
    """The name in errors of a file of rows, which is in the current `folder`, a temporary one, or anywhere."""
    return path.relative_to(folder) if path.is_relative_to(folder) else path


def _rows(examples: Any) -> Iterable[Any]:
    if isinstance(examples, DataFrame) and not isinstance(examples, Mapping) and hasattr(examples, "shape"):
        names = [str(name) for name in examples.columns]
        return (dict(zip(names, row, strict=True)) for row in zip(*(examples[name] for name in names), strict=True))
    if isinstance(examples, Iterable) and not isinstance(examples, Mapping | bytes):
        return examples
    raise TrainingError(
        f"the examples are a {type(examples).__name__}; give a DataFrame, a Dataset, a list of rows or the name of a "
        "file"
    )


def _values(row: Any, columns: Sequence[str], number: int) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return {str(name): plain_value(value) for name, value in row.items()}
    if isinstance(row, tuple) and len(row) == len(columns):
        return {name: plain_value(value) for name, value in zip(columns, row, strict=True)}
    raise TrainingError(f"example {number} is {shown(row)}; it must be a mapping, or a tuple of {', '.join(columns)}")


def _line(values: Mapping[str, Any], number: int) -> str:
    try:
        return json.dumps(values, ensure_ascii=False) + "\n"
    except TypeError:
        name, value = next((name, value) for name, value in values.items() if not _is_json(value))
        raise TrainingError(
            f"example {number} has {shown(value)} as {name!r}; a value must be a text, a number, true or false, or a "
            "list of these"
        ) from None


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


def plain_value(value: Any) -> Any:
    """The value for JSON, also within lists and mappings: numpy's numbers and arrays and decimal numbers as Python's,
    and a missing value of a DataFrame as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, Mapping):
        return {name: plain_value(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(one) for one in value]
    is_missing = type(value).__name__ in _MISSING or (isinstance(value, float) and math.isnan(value))
    return None if is_missing else value


@cache
def _backbone(name: str, device: str) -> Backbone:
    """All adapters of a process share a backbone."""
    return load_backbone(name, device=device)


def load(path: Path | str, *, backbone: str = "minilm", device: str = "auto") -> "Adapter":
    """The adapter of an artifact. Raises an `ArtifactError` with every reason if `backbone` cannot serve it."""
    adapter = Adapter(Path(path).read_bytes(), backbone, device)
    _ = adapter.artifact  # checked now, and not at its first use
    return adapter


@dataclass(frozen=True)
class Adapter:
    """A trained adapter with the bytes of its artifact. One that `train` has returned also has its report, as JSON and
    as a page, and the pre-flight report of its examples."""

    data: bytes = field(repr=False)
    backbone: str = "minilm"
    device: str = "auto"
    report: bytes | None = field(default=None, repr=False)
    page: bytes | None = field(default=None, repr=False)
    preflight: Mapping[str, Any] | None = field(default=None, repr=False)

    @cached_property
    def artifact(self) -> Artifact:
        """The artifact, checked as a server checks an upload."""
        return read_artifact(self.data, _backbone(self.backbone, self.device))

    @property
    def manifest(self) -> Manifest:
        """The name, task, method and training of the adapter."""
        return self.artifact.manifest

    @property
    def name(self) -> str:
        """Its name, which is also that of its task."""
        return self.manifest.name

    @property
    def metrics(self) -> dict[str, float]:
        """What it reached on the validation examples of its training."""
        return dict(self.manifest.training.metrics)

    def predict(self, inputs: Sequence[TaskInput]) -> list[dict[str, Any]]:
        """The answer to each input, with the fields of a server's prediction: `label`, `score` and `scores` of a
        classification, `value`, `labels`, `embedding`, `entities`, `text` and so on.

        An input is a text, or as many texts as the task has. Raises an `InputError` that names what is wrong with one.
        """
        if isinstance(inputs, str):
            raise TrainingError("the inputs are one text; give a list of inputs")
        return answer_all(_backbone(self.backbone, self.device), self.artifact, inputs)

    def evaluate(self, examples: Examples) -> dict[str, float]:
        """The metrics of its task on labelled examples with the columns of its training. Raises a `TrainingError`."""
        trained, task = self.manifest.training.data, self.manifest.task
        columns = tuple(trained.get("text_columns") or ("text",))
        label = str(trained.get("label_column") or "label")
        with TemporaryDirectory(prefix="peltier-") as folder:
            path = short_name(write_rows(examples, Path(folder) / "examples.jsonl", (*columns, label)), Path(folder))
            data = Data(path, path, columns, label, labels=task.labels, label_separator=trained.get("label_separator"))
            with chdir(folder):
                rows = read_file(data, path, task.type, task.labels)
        refuse(rows.bad)
        return dict(evaluate(_backbone(self.backbone, self.device), self.artifact, rows.examples).metrics)

    def save(self, path: Path | str) -> Path:
        """Writes the artifact, and beside it the report of its training, if it has one; returns the artifact's path."""
        path = Path(path)
        write_file(path, self.data)
        for suffix, content in ((".report.json", self.report), (".report.html", self.page)):
            if content is not None:
                write_file(path.with_suffix(suffix), content)
        return path

    def push(self, repository: str, *, private: bool = False) -> str:
        """Pushes the artifact and its model card to the hub, `hf://OWNER/NAME`; returns the address of the commit."""
        with TemporaryDirectory(prefix="peltier-") as folder:
            path = self.save(Path(folder) / f"{self.name}.safetensors")
            return str(push_artifact(path, parse_repository(repository), PushOptions(private)))

    def publish(
        self, url: str = DEFAULT_URL, *, api_key: str | None = None, name: str | None = None, alias: str | None = None
    ) -> UploadedVersion:
        """Uploads the artifact with its report to a server, as its next version. Raises a `PeltierError`, such as
        `ArtifactRefused` with every reason."""
        with Client(url, api_key=api_key) as client:
            return client.upload(self.data, name, alias=alias, report=self.report)

    def __repr__(self) -> str:
        manifest = self.manifest
        return f"<Adapter {manifest.name}: {manifest.preset} on {manifest.backbone.name}, {_metrics(self.metrics)}>"

    def _repr_html_(self) -> str:
        """The name, the method, the labels and the metrics as a table, for notebooks."""
        manifest = self.manifest
        rows = {
            "method": manifest.preset,
            "backbone": manifest.backbone.name,
            "task": manifest.task.type,
            "labels": ", ".join(manifest.task.labels[:10]) + ("…" if len(manifest.task.labels) > 10 else ""),
            "size": f"{len(self.data) / 1000:,.0f} kB",
            "metrics": _metrics(self.metrics),
        }
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td style='text-align:left'>"
            f"{html.escape(value)}</td></tr>"
            for name, value in rows.items()
            if value
        )
        return f"<b>{html.escape(manifest.name)}</b><table>{cells}</table>"


def _metrics(found: Mapping[str, float]) -> str:
    shown = sorted(found.items())[:_SHOWN_METRICS]
    return ", ".join(f"{name} {value:.4f}" for name, value in shown)


def train(  # noqa: PLR0913 - what a training is
    examples: Examples,
    *,
    task: str,
    task_type: TaskType = "classification",
    validation: Examples | None = None,
    validation_share: float = DEFAULT_SHARE,
    preset: str | None = None,
    recipe: str | None = None,
    settings: Mapping[str, Any] | None = None,
    learning_rate_multiplier: float | None = None,
    budget: Mapping[str, float] | None = None,
    backbone: str = "minilm",
    seed: int = 0,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    labels: Iterable[Any] | None = None,
    device: str = "auto",
) -> Adapter:
    """Trains an adapter on examples and returns it, proved as a server proves an upload.

    Examples are a DataFrame of pandas or polars, a `datasets.Dataset`, mappings, tuples of the texts and the label, or
    the name of a file. Without `validation`, `validation_share` of them choose the best epoch. `preset` is a method
    (default: compacter), and `settings` are its settings and the hyper-parameters, as in `POST /v1/trainings`. A
    `budget`, {"steps": 500} or {"minutes": 5}, ends the training earlier. The current directory stays as it is, and
    nothing is written into it. The progress is written to stderr.

    Raises an exception of one sentence: `TrainingError` for examples or hyper-parameters that cannot be used and if
    training diverges, `AdapterError` for a preset or its settings, `BackboneError` for a backbone.
    """
    given = {
        "task": task,
        "task_type": task_type,
        "preset": preset,
        "recipe": recipe,
        "settings": dict(settings or {}),
        "learning_rate_multiplier": learning_rate_multiplier,
        "budget": budget,
        "validation_share": validation_share,
        "seed": seed,
        "text_columns": text_columns,
        "label_column": label_column,
        "labels": _names(labels),
    }
    request = RequestedTraining.read(given)
    machine = Machine(str(Path(backbone).resolve()) if os.path.isdir(backbone) else backbone, device)
    data = request.data(Path(), Path())
    columns = (*data.text_columns, data.label_column)
    with TemporaryDirectory(prefix="peltier-") as folder:
        here = Path(folder)
        rows = write_rows(examples, here / "examples.jsonl", columns)
        checked = None if validation is None else write_rows(validation, here / "validation.jsonl", columns)
        # A run's files have names in the current directory.
        with chdir(here):
            return _train(request, machine, short_name(rows, here), checked and short_name(checked, here))


def _names(labels: Iterable[Any] | None) -> Any:
    """The names of labels; a text, which is no list of them, is left to the check of the request."""
    if labels is None or isinstance(labels, str):
        return labels
    if isinstance(labels, Mapping | set | frozenset):
        raise TrainingError(
            f"labels is {shown(labels)}, a {type(labels).__name__}; it must be a list of names in the order of their "
            "positions"
        )
    return [label_name(plain_value(label)) for label in labels]


def _train(request: RequestedTraining, machine: Machine, rows: Path, validation: Path | None) -> Adapter:
    prepared = prepare_request(request, rows, validation, machine)
    preflight = Preflight(prepared)
    preflight.check()
    found = preflight.report()
    run = prepared.run
    deadline = Deadline(run, request.budget, spent=0.0)
    learned = learn(prepared, [deadline], preflight=found)
    finish(replace(learned, history=deadline.explain(learned.history)))
    report, page = (path.read_bytes() for path in report_paths(run.output))
    trained = Adapter(run.output.read_bytes(), run.backbone, run.device)
    return replace(trained, report=report, page=page, preflight=found)
