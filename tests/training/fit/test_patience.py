"""When epochs have been in vain."""

from collections.abc import Callable

import pytest
from peltier_training.config.run import Run
from peltier_training.fit.patience import is_over

MakeRun = Callable[..., Run]


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
