"""`peltier.train`: what `POST /v1/trainings` does, in this process."""

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

from peltier_adapters.spec.tasks import TaskType

from peltier_training.config.preparation import prepare
from peltier_training.data.label_names import label_name
from peltier_training.errors import TrainingError, shown
from peltier_training.fit.preflight import Preflight
from peltier_training.notebook.adapter import Adapter
from peltier_training.notebook.examples import Examples, plain_value, short_name, write_rows
from peltier_training.report.page import report_paths
from peltier_training.service.budget import Deadline, within_steps
from peltier_training.service.examples import split_file
from peltier_training.service.request import DEFAULT_SHARE, Machine, RequestedTraining, create_run
from peltier_training.train import finish, learn


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
    with tempfile.TemporaryDirectory(prefix="peltier-") as folder:
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
    data = request.data(rows, validation or rows)
    if validation is None:
        data = split_file(data, request.task_type, request.validation_share, request.seed)
    asked = create_run(request, data, machine)
    prepared = within_steps(asked, prepare(asked), request.budget.steps)
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
