"""One trial, on rows drawn from the training set, in a separate process, so that its memory is measurable and a crash
does not affect others."""

import math
import random
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from peltier_adapters.spec.tasks import EMBEDDING_TYPES

from peltier_training.config.run import Run
from peltier_training.data.data import Data, read_file, write_examples
from peltier_training.data.examples import Example, are_scored
from peltier_training.errors import TrainingError
from peltier_training.executor.executor import write_output_to
from peltier_training.report.report import Report
from peltier_training.sweep.trial import Trial, TrialOutcome
from peltier_training.train import train

LOG = "log.txt"


def work(job: tuple[Trial, Path], send: Callable[[TrialOutcome], None]) -> None:
    """The work of an executor: run a trial in a directory."""
    send(run_alone(*job))


def run_alone(trial: Trial, directory: Path) -> TrialOutcome:
    """Empty `directory` and run `trial` there with one thread and its output in a log, in a process of its own. Every
    error becomes an outcome."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    write_output_to(directory / LOG)
    torch.set_num_threads(1)  # results depend on the number, and one trial per core is fastest
    try:
        return run_trial(trial, directory)
    except Exception as error:
        traceback.print_exc()
        return TrialOutcome(failure=_sentence(error))


def run_trial(trial: Trial, directory: Path) -> TrialOutcome:
    """Draw the rows, train and measure. The artifact and its report are kept in `directory`, checkpoints are not."""
    start = time.perf_counter()
    scratch = directory / "run"
    scratch.mkdir()
    try:
        data, num_rows = _draw(trial, scratch)
        run = replace(trial.run, data=data, output=directory / f"{trial.run.task}.safetensors", directory=scratch)
        test = _read(trial.run, trial.run.data.validation) if trial.dev_rows else None
        result = train(run)
    finally:
        shutil.rmtree(scratch)
    metrics = result.metrics | _routes(result.report) if test is None else dict(result.learner.evaluate(test).metrics)
    _check_finite(metrics)
    cost, resolved = result.report.cost, result.report.resolved
    assert resolved is not None, "only older reports lack it"
    return TrialOutcome(
        metrics=metrics,
        rows=num_rows,
        epochs=resolved.epochs,
        ended=resolved.ended,
        seconds=time.perf_counter() - start,
        seconds_per_epoch=cost.seconds_per_epoch,
        memory_bytes=cost.memory_bytes,
        device_memory_bytes=cost.device_memory_bytes,
    )


def _check_finite(metrics: Mapping[str, float]) -> None:
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise TrainingError(f"{name} is {value} on the validation rows; a metric must be a finite number")


def _routes(report: Report) -> dict[str, float]:
    """The metrics of unmerged routes in a merge report, such as "accuracy random routing"."""
    ways = report.merging.ways if report.merging else ()
    return {
        f"{metric} {way.name}": spread.mean
        for way in ways
        if way.name != "merged"
        for metric, spread in way.metrics.items()
    }


def _draw(trial: Trial, directory: Path) -> tuple[Data, int]:
    """The files of the drawn rows, and the number of training rows."""
    data = trial.run.data
    rows = _read(trial.run, data.train)
    train, dev = draw(rows, trial.size, trial.dev_rows, trial.seed, by_query=_are_grouped(trial.run, rows))
    drawn = replace(data, train=directory / "train.jsonl")
    write_examples(drawn.train, train, data.text_columns, data.label_column)
    if dev:
        drawn = replace(drawn, validation=directory / "dev.jsonl")
        write_examples(drawn.validation, dev, data.text_columns, data.label_column)
    return drawn, len(train)


def _are_grouped(run: Run, rows: Sequence[Example]) -> bool:
    """Whether rows of one first text belong together: documents of a query, or pairs of an embedding without scores."""
    return run.task_type == "ranking" or (run.task_type in EMBEDDING_TYPES and not are_scored(rows))


def _read(run: Run, path: Path) -> list[Example]:
    return list(read_file(run.data, path, run.task_type, run.data.labels).examples)


def _sentence(error: Exception) -> str:
    """The message of a user error. For any other error, which is a bug, also its name; the log has the traceback."""
    text = " ".join(str(error).split())
    return text if getattr(error, "is_user_error", False) else f"{type(error).__name__}: {text} (see its {LOG})"


def draw(
    examples: Sequence[Example], size: int | None, dev_rows: int, seed: int, *, by_query: bool = False
) -> tuple[list[Example], list[Example]]:
    """The first `size` examples of a shuffle, or all but `dev_rows`, and the next `dev_rows` (UniPELT section 4.1).

    A smaller draw with the same seed is a prefix of a larger one. With `by_query` all examples of one first text,
    such as the documents of a query, are drawn together, so a few more examples may be drawn.
    """
    order = list(_queries(examples).values()) if by_query else [[example] for example in examples]
    random.Random(seed).shuffle(order)
    groups = iter(order)
    train = _take(groups, len(examples) - dev_rows if size is None else size)
    return train, _take(groups, dev_rows)


def _queries(examples: Sequence[Example]) -> dict[str, list[Example]]:
    found: dict[str, list[Example]] = {}
    for example in examples:
        found.setdefault(example.input[0], []).append(example)
    return found


def _take(groups: Iterator[list[Example]], num: int) -> list[Example]:
    """The examples of the next groups, until there are `num`."""
    taken: list[Example] = []
    while len(taken) < num and (group := next(groups, None)) is not None:
        taken += group
    return taken
