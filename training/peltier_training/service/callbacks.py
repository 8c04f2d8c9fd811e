"""The Trainer callbacks that end a training at its budget, and report its progress and its checkpoints. A checkpoint is
one archive, by which another worker goes on."""

import io
import json
import math
import re
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState

from peltier_training.config.run import Run
from peltier_training.errors import TrainingError
from peltier_training.fit.checkpoint import newest_checkpoint
from peltier_training.fit.schedule import DECAY_SHARE, budget_entry, find_best, find_budget_decay, find_decay
from peltier_training.fit.trainer import History
from peltier_training.service.child import Progressed, Saved
from peltier_training.service.request import Budget

MAX_BYTES = 4 * 2**30
_SECONDS_BETWEEN_REPORTS = 1.0
Send = Callable[[Progressed | Saved], None]
SECONDS_BETWEEN_CHECKPOINTS = 30.0
# Saving takes at most a twentieth of the time.
_PAUSES_OF_A_SAVE = 20
_MEMBER = re.compile(r"checkpoint-[0-9]{1,12}/[A-Za-z0-9_][A-Za-z0-9_.-]*")


def pack(directory: Path) -> bytes:
    """The newest checkpoint of a run's directory and the weights of the best one, as a tar file. The same files give
    the same bytes. Raises a `TrainingError` if there is no checkpoint."""
    newest = newest_checkpoint(directory)
    files = [path for path in sorted(newest.iterdir()) if path.is_file()]
    best = json.loads((newest / "trainer_state.json").read_text(encoding="utf-8")).get("best_model_checkpoint")
    if best is not None and Path(best).name != newest.name:
        files += sorted((directory / Path(best).name).glob("*.safetensors"))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in files:
            data = path.read_bytes()
            member = tarfile.TarInfo(f"{path.parent.name}/{path.name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def unpack(data: bytes, directory: Path) -> None:
    """Write the checkpoints of `pack` into a run's directory.

    Raises a `TrainingError` for anything else than files of checkpoints, before it writes one of them."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            members = archive.getmembers()
            _check(members)
            archive.extractall(directory, members, filter="data")
    except tarfile.TarError as error:
        raise TrainingError(f"the checkpoint cannot be read: {error}") from None


def _check(members: list[tarfile.TarInfo]) -> None:
    for member in members:
        if not member.isreg() or _MEMBER.fullmatch(member.name) is None:
            raise TrainingError(f"the checkpoint has {member.name!r}, which is not a file of a checkpoint")
    if (total := sum(member.size for member in members)) > MAX_BYTES:
        raise TrainingError(f"the checkpoint has {total:,} bytes; at most {MAX_BYTES:,} are read")
    if len({member.name for member in members}) != len(members):
        raise TrainingError("the checkpoint has a file twice")


class Deadline(TrainerCallback):
    """Stops a training at its budget. The rest of the epoch is left out, and what was learned until then is validated.
    Within a budget in minutes it starts the decay of the learning rate (`fit.schedule`).

    `spent` is the time of earlier attempts in seconds."""

    def __init__(self, run: Run, budget: Budget, spent: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._budget, self._clock = run, budget, clock
        self._start = clock() - spent
        self._first_step, self._begun = 0, self._start
        self._is_reached = False

    @property
    def seconds_left(self) -> float:
        """Until the budget is used up."""
        return max(self._seconds - (self._clock() - self._start), 0.0)

    @property
    def _seconds(self) -> float:
        return math.inf if self._budget.minutes is None else 60 * self._budget.minutes

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._first_step, self._begun = state.global_step, self._clock()
        self._is_reached = self._is_over(state)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if 0 < self.seconds_left <= (1 - DECAY_SHARE) * self._seconds < math.inf:
            self._start_decay(state)
        if self._is_over(state):
            self._is_reached = control.should_training_stop = True

    def _start_decay(self, state: TrainerState) -> None:
        """Have the rate fall from this step on, if it would not be 0 before the budget is used up."""
        step, begun = state.global_step, self._begun
        steps_left = int(self.seconds_left * (step - self._first_step) / max(self._clock() - begun, 1e-9))
        end = step + max(steps_left, 1)
        if find_decay(self._run, state.log_history) is None and end < state.max_steps:
            state.log_history.append(budget_entry(step, state.epoch or 0.0, end))

    def _is_over(self, state: TrainerState) -> bool:
        steps, decay = self._budget.steps, find_budget_decay(state.log_history)
        last = min(math.inf if steps is None else steps, math.inf if decay is None else decay.end)
        return self.seconds_left <= 0 or state.global_step >= last

    def explain(self, history: History) -> History:
        """The history with the budget as the reason for its end, if it was."""
        if not self._is_reached:
            return history
        used = f"{self._budget.steps} steps" if self._budget.minutes is None else f"{self._budget.minutes:g} minutes"
        return replace(history, ending=f"the budget of {used} is used up", has_converged=False)


class Observer(TrainerCallback):
    """Sends the progress about once a second and after each validation, and packs each checkpoint into `archive`."""

    def __init__(self, run: Run, deadline: Deadline, archive: Path, send: Send) -> None:
        self._run, self._deadline, self._archive, self._send = run, deadline, archive, send
        self._first_step, self._begun, self._sent = 0, time.monotonic(), 0.0

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._first_step, self._begun = state.global_step, time.monotonic()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if time.monotonic() - self._sent >= _SECONDS_BETWEEN_REPORTS:
            self._report(state, is_validation=False)

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._report(state, is_validation=True)

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Replace the archive as a whole, because the worker may be reading the last one."""
        new = self._archive.with_suffix(".new")
        new.write_bytes(pack(self._run.directory))
        new.replace(self._archive)
        self._send(Saved(state.global_step))

    def _report(self, state: TrainerState, *, is_validation: bool) -> None:
        self._sent = time.monotonic()
        name = f"eval_{self._run.metric}"
        best = find_best(self._run, state.log_history) or {}
        progress = {
            "step": state.global_step,
            "max_steps": self._last_step(state),
            "epoch": _finite(state.epoch, 3),
            "loss": _finite(_last(state, "loss"), 6),
            "metric": self._run.metric,
            "value": _finite(_last(state, name), 6),
            "best": _finite(best.get(name), 6),
            "best_step": best.get("step"),
            "learning_rate": _finite(_last(state, "learning_rate"), 10),
            "seconds_left": self._seconds_left(state),
        }
        self._send(Progressed(progress, is_validation))

    def _last_step(self, state: TrainerState) -> int:
        decay = find_decay(self._run, state.log_history)
        return state.max_steps if decay is None else decay.end

    def _seconds_left(self, state: TrainerState) -> float | None:
        """At most so long; None before the first step of this process."""
        steps = state.global_step - self._first_step
        if steps <= 0:
            return None
        rate = (time.monotonic() - self._begun) / steps
        left = max(self._last_step(state) - state.global_step, 0) * rate
        return _finite(min(left, self._deadline.seconds_left), 1)


def _last(state: TrainerState, name: str) -> float | None:
    return next((entry[name] for entry in reversed(state.log_history) if name in entry), None)


def _finite(value: float | None, digits: int) -> float | None:
    """The number for JSON, which has none for infinity."""
    return None if value is None or not math.isfinite(value) else round(float(value), digits)


class CheckpointTimes(TrainerCallback):
    """Saves at the end of a step once the last checkpoint is `SECONDS_BETWEEN_CHECKPOINTS` old, or 20 times what a
    checkpoint takes if that is longer, and at the next step once the file `asked` is there.

    It comes after the callbacks that end a training or save at the end of an epoch: what they validate is saved then.
    """

    def __init__(self, asked: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._asked, self._clock = asked, clock
        self._saved_at, self._pause = clock(), SECONDS_BETWEEN_CHECKPOINTS
        # When a checkpoint was begun that this callback wants; None for those that follow a validation.
        self._begun_at: float | None = None

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._saved_at = self._clock()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        # After a checkpoint of the last step of an epoch the Trainer would begin the next epoch without validating.
        if not control.should_training_stop and not float(state.epoch or 0).is_integer():
            self._save_if_due(control)

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if not control.should_save:
            self._save_if_due(control)

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._asked.unlink(missing_ok=True)
        self._saved_at = self._clock()
        if self._begun_at is not None:
            self._pause = max(SECONDS_BETWEEN_CHECKPOINTS, _PAUSES_OF_A_SAVE * (self._saved_at - self._begun_at))
        self._begun_at = None

    def _save_if_due(self, control: TrainerControl) -> None:
        now = self._clock()
        if now - self._saved_at >= self._pause or self._asked.exists():
            self._begun_at = now
            # A resumed training adds up the losses of its own steps only, so those until now are logged.
            control.should_save = control.should_log = True
