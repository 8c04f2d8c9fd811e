"""Which validation is the best, when a training ends, and its learning rate until then, as functions of the Trainer's
log.

The best validation has the best metric; among equal ones the lowest loss decides, and among those the later one.

In a warm-up of n steps, step s has s / (n + 1) of the highest rate, so the first step of every run changes the adapter.
A run with a number of epochs then has the Trainer's linear decay, and ends early if it has a `patience`. A run with an
open end keeps the highest rate after its warm-up, at least until step `LEAST_STEPS`, until `patience` validations bring
no improvement, or the most epochs are near. Then the rate falls linearly to 0, and the run ends. This is the
warmup-stable-decay schedule of MiniCPM (Hu et al. 2024), whose decay needs a fraction of the steps before it (Hägele et
al. 2024).

Patience waits for a better metric. While a metric has never been above 0, as the F1 of rare entities for hundreds of
steps, it waits for a lower loss instead.

A budget in minutes ends a run of either kind earlier. Once three quarters of it are used, `service.callbacks.Deadline`
puts an entry into the log, with the last step that fits into the rest at the speed until then. From that step on the
rate falls linearly to 0.

The log is part of checkpoints, so a resumed run ends where an uninterrupted one does. A run that resumes from a
checkpoint after the entry of the budget has its rates and its last step, whatever the time; before it, the time of
earlier attempts counts.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from peltier_training.config.run import LOWER_IS_BETTER, Run

Log = Sequence[Mapping[str, float]]
LEAST_STEPS = 300  # before patience counts
_DECAY_DIVISOR = 3  # of the epochs before the decay, for its own
DECAY_SHARE = _DECAY_DIVISOR / (_DECAY_DIVISOR + 1)  # of a budget, before the decay
_BUDGET_END = "decay_end"


class Decay(NamedTuple):
    """The last phase of a run with an open end or a budget, in steps and as its last epoch. `is_forced` tells whether
    the most epochs or the budget were the reason, and not a plateau."""

    start: int
    end: int
    last_epoch: int
    is_forced: bool

    def factor(self, step: int) -> float:
        """What the highest learning rate is multiplied by after `step` steps."""
        return max((self.end - step) / (self.end - self.start), 0.0)


def rate_factor(run: Run, log: Log, step: int, warmup: int, most: int) -> float:
    """What the highest learning rate is multiplied by after `step` of at most `most` steps, `warmup` of which warm
    up."""
    decay = find_decay(run, log)
    reached = step if decay is None else decay.start
    if reached < warmup:
        factor = (reached + 1) / (warmup + 1)
    elif run.hyperparameters.open_end:
        factor = 1.0
    else:
        factor = max((most - reached) / max(most - warmup, 1), 0.0)
    return factor if decay is None else factor * decay.factor(step)


def budget_entry(step: int, epoch: float, end: int) -> dict[str, float]:
    """The entry of the log by which the rate falls from `step` to `end`."""
    return {_BUDGET_END: end, "epoch": epoch, "step": step}


def find_budget_decay(log: Log) -> Decay | None:
    """The decay that the budget's entry starts; None without an entry."""
    for entry in log:
        if (end := entry.get(_BUDGET_END)) is not None:
            last = math.ceil(entry["epoch"] * end / entry["step"])
            return Decay(int(entry["step"]), int(end), last, is_forced=True)
    return None


def find_decay(run: Run, log: Log) -> Decay | None:
    """The decay of a run with an open end or a budget; None before it starts, and for other runs."""
    if (decay := find_budget_decay(log)) is not None or not run.hyperparameters.open_end:
        return decay
    validations = _validations(run, log)
    for number, (_, _, entry) in enumerate(validations, 1):
        epoch = round(entry["epoch"])
        is_plateau = entry["step"] >= LEAST_STEPS and _num_since_better(run, validations[:number]) >= _patience(run)
        if is_plateau or _decayed_epoch(run, epoch + _interval(run)) > run.epochs:
            last, step = min(_decayed_epoch(run, epoch), run.epochs), int(entry["step"])
            return Decay(step, last * (step // epoch), last, is_forced=not is_plateau)
    return None


def is_over(run: Run, log: Log) -> bool:
    """Whether training ends at the last validation of `log`, before its epochs do."""
    if (decay := find_decay(run, log)) is not None or run.hyperparameters.open_end:
        return decay is not None and log[-1]["step"] >= decay.end
    return _has_patience(run) and num_without_improvement(run, log) >= _patience(run)


def has_converged(run: Run, log: Log) -> bool:
    """Whether the run ended because the validation stopped improving."""
    if decay := find_decay(run, log):
        return not decay.is_forced
    return is_over(run, log)


def why_ended(run: Run, log: Log) -> str:
    """The reason for the end of a finished run, a clause."""
    if find_budget_decay(log):
        return "the budget is used up"
    if has_converged(run, log):
        return f"{no_improvement(run, log)} in {patience_text(run)}"
    if run.hyperparameters.open_end:
        return f"{run.epochs} epochs are the most without --epochs"
    return "the given epochs are done" if run.epochs > 1 else "the given epoch is done"


def patience_text(run: Run) -> str:
    """The patience of a run that has one, such as "4 validations"."""
    return f"{_patience(run)} validation{'s' if _patience(run) > 1 else ''}"


def no_improvement(run: Run, log: Log) -> str:
    """What a run whose patience is at an end did not find, a clause."""
    if _has_risen(run, _validations(run, log)):
        return f"no better {run.metric}"
    return f"no {run.metric} above 0 and no lower loss"


def num_without_improvement(run: Run, log: Log) -> int:
    """The number of validations since the first with the best metric, or with the lowest loss while no metric has been
    above 0."""
    return _num_since_better(run, _validations(run, log))


def find_best(run: Run, log: Log) -> Mapping[str, float] | None:
    """The entry of the best validation of `log`; None without any."""
    validations = _validations(run, log)
    if not validations:
        return None
    return max(enumerate(validations), key=lambda one: (one[1].score, one[1].loss, one[0]))[1].entry


def is_best(run: Run, log: Log) -> bool:
    """Whether the last validation of `log` is the best one."""
    return find_best(run, log) is _validations(run, log)[-1].entry


class _Validation(NamedTuple):
    """A validation by its metric and its loss, both with a sign by which higher is better, and its entry of the log."""

    score: float
    loss: float
    entry: Mapping[str, float]


def _validations(run: Run, log: Log) -> list[_Validation]:
    sign = -1.0 if run.metric in LOWER_IS_BETTER else 1.0
    return [
        _Validation(_ordered(sign * score), _ordered(-entry.get("eval_loss", math.inf)), entry)
        for entry in log
        if (score := entry.get(f"eval_{run.metric}")) is not None
    ]


def _ordered(value: float) -> float:
    """The value in an order in which no number is the worst one."""
    return -math.inf if math.isnan(value) else value


def _has_risen(run: Run, validations: Sequence[_Validation]) -> bool:
    """Whether the metric has been better than that of answers which say nothing."""
    return run.metric in LOWER_IS_BETTER or any(validation.score > 0 for validation in validations)


def _num_since_better(run: Run, validations: Sequence[_Validation]) -> int:
    """As good is no better."""
    values = [one.score if _has_risen(run, validations) else one.loss for one in validations]
    return len(values) - 1 - values.index(max(values)) if values else 0


def _decayed_epoch(run: Run, epoch: int) -> int:
    """The last epoch of a decay that starts after `epoch`. It ends at a validation."""
    return epoch + _interval(run) * math.ceil(epoch / (_DECAY_DIVISOR * _interval(run)))


def _interval(run: Run) -> int:
    return run.hyperparameters.validation_interval or 1


def _has_patience(run: Run) -> bool:
    return run.hyperparameters.patience is not None


def _patience(run: Run) -> int:
    assert run.hyperparameters.patience is not None
    return run.hyperparameters.patience
