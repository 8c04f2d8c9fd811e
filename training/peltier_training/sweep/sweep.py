"""A whole sweep: runs the trials that have no result yet, and writes their results to a folder.

The folder holds `results.jsonl`, `table.md`, `table.csv`, the plots `sizes.svg` and `parameters.svg`, and in
`trials/KEY` each trial's artifact, report and log.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from peltier_training.delivery import write_file
from peltier_training.errors import TrainingError
from peltier_training.executor.executor import Executor, Failure
from peltier_training.sweep import plots
from peltier_training.sweep.table import SweepTable, check_grouping, create_table, default_grouping, to_csv, to_markdown
from peltier_training.sweep.trial import Trial, TrialOutcome, TrialResult
from peltier_training.sweep.worker import work

Tell = Callable[[str], None]
# Takes the number of trials that are done, and of all.
CountTrials = Callable[[int, int], None]


class Ledger:
    """The last result of each trial by its key. A lock admits one sweep at a time."""

    def __init__(self, path: Path, file: int) -> None:
        self._file = file
        self.results: dict[str, TrialResult] = {}
        for number, line in enumerate(_whole_lines(file), 1):
            result = _parse(path, number, line)
            self.results[result.key] = result

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator["Ledger"]:
        """The ledger at `path`, created if missing. Raises a `TrainingError` while another sweep has it open."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TrainingError(
                    f"another sweep is writing to {path}; only one sweep at a time can use a folder"
                ) from None
            yield cls(path, file)
        finally:
            os.close(file)

    def append(self, result: TrialResult) -> None:
        """Append a result; it is durable when this returns."""
        os.write(self._file, result.model_dump_json().encode() + b"\n")
        os.fsync(self._file)
        self.results[result.key] = result


def _whole_lines(file: int) -> list[bytes]:
    """The complete lines; an incomplete last line is removed from the file."""
    with os.fdopen(os.dup(file), "rb") as reader:
        reader.seek(0)
        data = reader.read()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.ftruncate(file, len(whole))
    return whole.splitlines()


def _parse(path: Path, number: int, line: bytes) -> TrialResult:
    try:
        return TrialResult.model_validate_json(line)
    except ValidationError:
        raise TrainingError(f"{path}:{number} is not a result of a sweep; choose another folder") from None


def _describe(trial: Trial, outcome: TrialOutcome) -> str:
    """The metric of a trial that succeeded, its time and its end."""
    metric = trial.run.metric
    ended = "" if outcome.ended is None else f", ended after epoch {outcome.epochs:g}: {outcome.ended}"
    return f"{metric} {outcome.metrics[metric]:.4f} in {outcome.seconds:.1f} s{ended}"


def _count_nothing(done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class Sweep:
    """Runs trials with `executor` and keeps their results in `folder`. `by` groups the table, by default by what
    varies. Raises a `TrainingError` for a `by` that no trial has."""

    trials: Sequence[Trial]
    folder: Path
    executor: Executor
    by: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_grouping(self.trials, self.by or ())

    def run(self, tell: Tell, count: CountTrials = _count_nothing, *, retry: bool = False) -> SweepTable:
        """Run every trial that has no result yet and, with `retry`, those that failed. `tell` gets a line for each, and
        `count` how many are done.

        However the run ends, the folder's table and plots have the results so far.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with Ledger.open(self.folder / "results.jsonl") as ledger:
            waiting = self._waiting(ledger, retry=retry)
            total = len({trial.key for trial in self.trials})
            tell(f"{total} trials, {total - len(waiting)} of them done, {self.executor.width} at a time")
            try:
                self._run(ledger, waiting, total, tell, count)
            finally:
                table = self._report(ledger)
            return table

    def _waiting(self, ledger: Ledger, *, retry: bool) -> list[Trial]:
        def is_done(trial: Trial) -> bool:
            result = ledger.results.get(trial.key)
            return result is not None and not (retry and result.failure is not None)

        return list({trial.key: trial for trial in self.trials if not is_done(trial)}.values())

    def _run(self, ledger: Ledger, waiting: Sequence[Trial], total: int, tell: Tell, count: CountTrials) -> None:
        done = total - len(waiting)
        count(done, total)
        jobs = [(trial, self.folder / "trials" / trial.key) for trial in waiting]
        for (trial, _), found in self.executor.run(work, jobs):
            outcome = TrialOutcome(failure=found) if isinstance(found, Failure) else found
            ledger.append(TrialResult.create(trial, outcome))
            done += 1
            tell(f"[{done}/{total}] {trial.name}: {outcome.failure or _describe(trial, outcome)}")
            count(done, total)

    def _report(self, ledger: Ledger) -> SweepTable:
        entries = [(trial, ledger.results[trial.key]) for trial in self.trials if trial.key in ledger.results]
        table = create_table(entries, self.by if self.by is not None else default_grouping(self.trials))
        drawn = {"sizes.svg": plots.size_svg(entries), "parameters.svg": plots.parameters_svg(entries)}
        for name, text in {"table.md": to_markdown(table), "table.csv": to_csv(table), **drawn}.items():
            if text is not None:
                write_file(self.folder / name, text.encode())
        return table
