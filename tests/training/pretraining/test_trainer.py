"""How the optimizer is set."""

import time

import pytest
import torch
from peltier_training.pretraining.run import PretrainingBudget
from peltier_training.pretraining.trainer import BudgetSchedule, rate_at, scaled_groups
from torch.nn import Parameter


def test_each_parameter_has_a_rate_of_its_size():
    """Relative to its root mean square; what begins at zero moves all the same."""
    parameters = [Parameter(torch.full((2, 3), -4.0)), Parameter(torch.tensor([3.0, 4.0])), Parameter(torch.zeros(5))]
    groups = scaled_groups(parameters, 0.02)
    assert [group["params"] for group in groups] == [[one] for one in parameters]
    rates = torch.tensor([group["lr"] for group in groups])
    torch.testing.assert_close(rates, torch.tensor([0.08, 0.02 * 12.5**0.5, 2e-5]))


def _schedule(budget: PretrainingBudget) -> BudgetSchedule:
    return BudgetSchedule(torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=0.5), budget, warmup=0.1)


def test_it_rises_and_falls_to_zero():
    """Linear warm-up, then half a cosine."""
    assert [rate_at(fraction, 0.2) for fraction in (0.0, 0.1, 0.2)] == [0.0, 0.5, 1.0]
    assert rate_at(0.6, 0.2) == pytest.approx(0.5)
    assert rate_at(1.0, 0.2) == pytest.approx(0.0)


def test_there_may_be_no_warm_up():
    """The first step has the highest rate."""
    assert rate_at(0.0, 0.0) == 1.0


def test_steps_are_counted():
    """A budget of steps is spent by steps, whatever the time."""
    schedule = _schedule(PretrainingBudget(steps=4))
    rates = []
    for _ in range(4):
        schedule.optimizer.step()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    assert rates == [pytest.approx(0.5 * rate_at(step / 4, 0.1)) for step in range(1, 5)]
    assert schedule.fraction == 1.0


def test_time_is_counted_over_calls(monkeypatch: pytest.MonkeyPatch):
    """The state carries the time that was trained, not this machine's clock."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    first = _schedule(PretrainingBudget(minutes=2))
    now += 30
    assert first.fraction == 0.25
    state = first.state_dict()
    now = 5.0
    second = _schedule(PretrainingBudget(minutes=2))
    second.load_state_dict(state)
    now += 60
    assert second.fraction == 0.75
