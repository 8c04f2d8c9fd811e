"""What commands print about a training: a line for each event, and the whole of it."""

from collections.abc import Iterable, Iterator

import typer
from rich.console import Console

from peltier_client.commands.tables import show, shown_minute
from peltier_client.protocol.trainings import Training, TrainingEvent, TrainingProgress, TrainingSummary
from peltier_client.synchronous import Client

_MINUTE = 60.0


def follow(client: Client, training_id: str, address: str = "") -> Training:
    """Print what happens to a training on stderr until it has ended. Ctrl-C leaves it running; the output says so.

    `address` is the option with the server's address, for a command that the output names.
    """
    try:
        for event in client.trainings.events(training_id):
            typer.echo(event_line(event), err=True)
        return client.trainings.get(training_id)
    except KeyboardInterrupt:
        watch, cancel = (f"peltier trainings {word} {training_id}{address}" for word in ("watch", "cancel"))
        typer.echo(f"the training goes on; watch it with: {watch}; or cancel it with: {cancel}", err=True)
        raise


def event_line(event: TrainingEvent) -> str:
    """An event as a line, in the form of the lines of a local training if it is a validation."""
    if event.kind != "progress":
        return event.message
    progress = TrainingProgress.model_validate(event.data)
    return "  ".join(_progress_parts(progress)) or event.message


def _progress_parts(progress: TrainingProgress) -> Iterator[str]:
    if progress.epoch is not None:
        yield f"epoch {progress.epoch:.4g}"
    if progress.step is not None:
        yield f"step {progress.step}" + (f"/{progress.max_steps}" if progress.max_steps is not None else "")
    if progress.loss is not None:
        yield f"loss {progress.loss:.4f}"
    if progress.metric is not None and progress.value is not None:
        yield f"{progress.metric} {progress.value:.4f}"
    if progress.learning_rate is not None:
        yield f"rate {progress.learning_rate:.1e}"
    if progress.best_step is not None and progress.best_step == progress.step:
        yield "best"


def print_trainings(trainings: Iterable[TrainingSummary]) -> None:
    """One line per training."""
    rows = [
        (
            training.id,
            training.task,
            training.status,
            shown_progress(training),
            shown_minute(training.created_at),
            training.adapter or training.reason or "",
        )
        for training in trainings
    ]
    show(("id", "task", "status", "progress", "created", "result"), rows, whole=("id", "status"))


def print_training(training: Training) -> None:
    """Everything about one training, a line each."""
    values = {
        "training": training.id,
        "task": training.task,
        "status": training.status + (f", to be {_WISHES[training.wish]}" if training.wish is not None else ""),
        "reason": training.reason,
        "adapter": training.adapter,
        "progress": shown_progress(training),
        "metrics": ", ".join(f"{name} {value:.4f}" for name, value in sorted((training.metrics or {}).items())),
        "settings": ", ".join(f"{name} {value}" for name, value in training.request.get("settings", {}).items()),
        "preset": training.request.get("preset"),
        "created": f"{shown_minute(training.created_at)} by {training.created_by or 'unknown'}",
        "time": f"{training.cost.seconds:.1f} s",
    }
    width = max(map(len, values))
    lines = (f"{name:{width}}  {value}" for name, value in values.items() if value)
    Console(soft_wrap=True).print("\n".join(lines), highlight=False, markup=False)


_WISHES = {"pause": "paused", "cancel": "cancelled"}


def shown_progress(training: TrainingSummary) -> str:
    """How far a training is, and how long it may take yet; empty before its first step."""
    progress = training.progress
    if progress is None or progress.step is None:
        return ""
    steps = f"step {progress.step}" + (f" of {progress.max_steps}" if progress.max_steps is not None else "")
    left = training.seconds_left
    if left is None:
        return steps
    return f"{steps}, {left / _MINUTE:.0f} min left" if left >= _MINUTE else f"{steps}, {left:.0f} s left"
