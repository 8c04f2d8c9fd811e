"""When a training ends, and its learning rate until then."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peltier_training.config.preparation import prepare
from peltier_training.config.run import LOWER_IS_BETTER, METRICS
from peltier_training.fit import schedule
from peltier_training.fit.callbacks import Validations
from peltier_training.fit.schedule import Decay, find_decay, has_converged, is_best, is_over, rate_factor, why_ended
from peltier_training.train import learn

from tests.training.conftest import MakeRun, keep_checkpoints, logged


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience counts from the first step on."""
    monkeypatch.setattr(schedule, "LEAST_STEPS", 0)


@pytest.mark.parametrize(
    ("patience", "scores", "over"),
    [
        (2, [], False),
        (2, [0.5, 0.9, 0.3], False),
        (2, [0.5, 0.9, 0.3, 0.9], True),  # as good is no better
        (2, [0.5, 0.9, 0.3, 0.95, 0.1], False),
        (2, [0.9, 0.1, 0.1, 0.1], True),
        (None, [0.9] + 50 * [0.1], False),
    ],
)
def test_patience_counts_from_the_best_epoch(make_run: MakeRun, patience: int | None, scores: list[float], over: bool):
    """On the metric that chooses it; other entries of the log are not epochs."""
    run = make_run(patience=patience)
    log = [entry for score in scores for entry in ({"loss": 1.0}, {"eval_accuracy": score})]
    assert is_over(run, log) is over


def test_less_loss_is_better(make_run: MakeRun):
    """Metrics that fall as answers get better are read so."""
    log = [{"eval_mse": value} for value in (0.5, 0.4, 0.3)]
    assert not is_over(make_run("regression", metric="mse", patience=1), log)
    assert is_over(make_run("regression", metric="mse", patience=1), log[::-1])


def _log(scores: Sequence[float], interval: int = 1) -> list[dict[str, float]]:
    """Validations every `interval` epochs of three steps."""
    epochs = range(interval, interval * len(scores) + 1, interval)
    return [
        {"eval_accuracy": score, "epoch": epoch, "step": 3 * epoch} for score, epoch in zip(scores, epochs, strict=True)
    ]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("scores", "interval", "decay"),
    [
        ([0.5, 0.6, 0.6], 1, None),
        ([0.5, 0.6, 0.6, 0.5], 1, Decay(12, 18, 6, is_forced=False)),  # two of four epochs, rounded up
        ([0.5, 0.6, 0.6, 0.5, 0.9], 1, Decay(12, 18, 6, is_forced=False)),  # it has started
        ([0.5, 0.4, 0.4], 4, Decay(36, 48, 16, is_forced=False)),  # whole intervals
        ([0.1 * number for number in range(14)], 1, None),
        ([0.1 * number for number in range(15)], 1, Decay(45, 60, 20, is_forced=True)),  # of at most 20 epochs
    ],
)
def test_the_rate_falls_after_patience_or_at_the_latest_time(make_run, scores, interval, decay):
    """It falls for a third of the epochs before, in whole intervals, and is 0 at the latest at the most epochs."""
    run = make_run(epochs=20, patience=2, open_end=True, validation_interval=interval)
    assert find_decay(run, _log(scores, interval)) == decay


def test_patience_does_not_count_at_first(make_run: MakeRun):
    """A metric that does not rise for 300 steps does not end a run."""
    run = make_run(epochs=1000, patience=2, open_end=True)
    assert find_decay(run, _log([0.5] * 99)) is None
    assert find_decay(run, _log([0.5] * 100)) is not None


def test_patience_waits_for_a_lower_loss_while_a_metric_is_0(make_run: MakeRun):
    """The F1 of rare entities may be 0 for more than 300 steps while the loss falls. If it does not fall either, the
    run ends."""
    run = make_run(epochs=1000, patience=2, open_end=True)
    falling = [entry | {"eval_loss": 1 / entry["step"]} for entry in _log([0.0] * 200)]
    assert find_decay(run, falling) is None
    assert find_decay(run, [*falling, *_log([0.0] * 200 + [0.1] * 3)[200:]]) is not None
    stuck = [*falling, *(entry | {"eval_loss": 0.5} for entry in _log([0.0] * 202)[200:])]
    assert find_decay(run, stuck[:-1]) is None
    decay = find_decay(run, stuck)
    assert not decay.is_forced
    assert why_ended(run, stuck) == "no accuracy above 0 and no lower loss in 2 validations"


@pytest.mark.parametrize(
    ("task_type", "metric"),
    [(kind, name) for kind, names in METRICS.items() for name in names if name not in LOWER_IS_BETTER],
)
def test_every_metric_that_stays_at_0_lets_patience_end_a_run(make_run: MakeRun, task_type: str, metric: str):
    """Of every task type: a correlation below 0 says as little as one of 0."""
    run = make_run(epochs=1000, patience=2, open_end=True, metric=metric, task_type=task_type)
    for value in (0.0, -0.5, math.nan):
        log = [
            {f"eval_{metric}": value, "eval_loss": 1.0, "epoch": epoch, "step": 3 * epoch} for epoch in (99, 100, 101)
        ]
        assert find_decay(run, log) is not None


@pytest.mark.parametrize(
    ("scores", "losses", "best"),
    [
        ([0.5, 0.7, 0.6], [1.0, 2.0, 0.5], 1),
        ([0.0, 0.0, 0.0], [3.0, 1.0, 2.0], 1),  # equal metrics: the lowest loss
        ([0.7, 0.7, 0.7], [1.0, 1.0, 1.0], 2),  # equal in both: the last, which was trained longest
        ([0.7, 0.5, 0.7], [1.0, 0.5, 2.0], 0),
        ([math.nan, 0.0, math.nan], [1.0, 2.0, 0.5], 1),  # no number is worse than any
        ([0.5, 0.5], [2.0, math.nan], 0),
        ([0.5, 0.5], [None, None], 1),  # older checkpoints have no loss of entities and spans
    ],
)
def test_the_loss_decides_among_equal_validations(make_run, scores, losses, best):
    """And among equal losses the later one; each validation is judged when it comes."""
    log = [
        entry if loss is None else entry | {"eval_loss": loss} for entry, loss in zip(_log(scores), losses, strict=True)
    ]
    kept = [number for number in range(len(log)) if is_best(make_run(), log[: number + 1])]
    assert kept[-1] == best


def test_the_lowest_error_is_the_best(make_run: MakeRun):
    """The sign of a metric decides, not its name."""
    log = [{"eval_mse": value, "eval_loss": 1.0} for value in (0.5, 0.4, 0.6)]
    run = make_run("regression", metric="mse")
    assert [is_best(run, log[: number + 1]) for number in range(3)] == [True, True, False]


@pytest.mark.parametrize("open_end", [False, True])
@pytest.mark.parametrize("warmup", [0, 1, 2, 500])
@pytest.mark.parametrize("most", [1, 2, 3, 40])
def test_every_step_of_a_run_has_a_rate(make_run: MakeRun, open_end: bool, warmup: int, most: int):
    """From the first to the last, also in a run of one step or of less steps than its warm-up."""
    run = make_run(epochs=most, patience=2, open_end=open_end)
    rates = [rate_factor(run, [], step, warmup, most) for step in range(most)]
    assert all(0 < rate <= 1 for rate in rates)
    assert rates[:warmup] == sorted(rates[:warmup])


def test_a_warm_up_is_linear_and_ends_at_the_highest_rate(make_run: MakeRun):
    """Four steps of it have fifths of the rate, and the step after them all of it; then it falls by sixths to 0."""
    run = make_run(epochs=1)
    rates = [rate_factor(run, [], step, 4, 10) for step in range(11)]
    assert rates == pytest.approx([1 / 5, 2 / 5, 3 / 5, 4 / 5, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0])


def test_a_plateau_alone_does_not_end_a_run_with_an_open_end(make_run: MakeRun):
    """Neither before patience counts nor before the rate has fallen."""
    run = make_run(epochs=500, patience=2, open_end=True, validation_interval=1)
    plateau = _log([0.5] * 101)  # step 303
    assert not is_over(run, plateau[:99])
    decay = find_decay(run, plateau)
    assert not is_over(run, plateau)
    assert is_over(run, _log([0.5] * decay.last_epoch))


def test_a_decay_is_linear():
    assert [Decay(12, 16, 4, is_forced=False).factor(step) for step in (12, 13, 16)] == [1.0, 0.75, 0.0]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("given", "scores", "converged", "reason"),
    [
        ({"epochs": 3}, [0.1, 0.2, 0.3], False, "the given epochs are done"),
        ({"epochs": 9, "patience": 2}, [0.3, 0.2, 0.3], True, "no better accuracy in 2 validations"),
        ({"epochs": 9, "patience": 2, "open_end": True}, [0.3, 0.2, 0.3, 0.4], True, "no better accuracy in 2 valid"),
        ({"epochs": 4, "patience": 2, "open_end": True}, [0.1, 0.2, 0.3, 0.4], False, "4 epochs are the most without"),
    ],
)
def test_an_ended_run_has_a_reason(make_run, given, scores, converged, reason):
    """A run has converged if its validations stopped improving, also if they improve while the rate falls."""
    run = make_run(**given)
    assert has_converged(run, _log(scores)) is converged
    assert why_ended(run, _log(scores)).startswith(reason)


@pytest.mark.usefixtures("impatient")
def test_a_run_with_an_open_end_resumes_exactly(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Resumed before or in its decay, it has the same rates, validations and adapter as without the break."""
    monkeypatch.setattr(Validations, "on_save", keep_checkpoints(kept := tmp_path / "kept"), raising=False)
    run = make_run(epochs=30, patience=2, open_end=True, learning_rate=2e-2, backbone_dropout=0.1)
    whole, log = learn(prepare(run)).learner.candidate().tensors, logged(run)
    decay = find_decay(run, log)
    assert is_over(run, log[:-1])  # the last entry sums up
    for step in (decay.start, decay.start + 3):
        shutil.rmtree(run.directory)
        for own in (path for path in kept.iterdir() if int(path.name.removeprefix("checkpoint-")) <= step):
            shutil.copytree(own, run.directory / own.name)
        again = learn(prepare(replace(run, resume=True))).learner.candidate().tensors
        assert [entry for entry in logged(run) if "loss" in entry] == [entry for entry in log if "loss" in entry]
        assert all(torch.equal(again[name], tensor) for name, tensor in whole.items())
