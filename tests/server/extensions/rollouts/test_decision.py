"""Decisions about guarded changes, by their counts."""

import itertools
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from peltier_client.protocol.rollouts import RolloutGuard
from peltier_server.extensions.rollouts.decision import STAKES, decide, evidence
from peltier_store.registry.extensions.rollout_records import StoredRollout

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def rollout(counts: Mapping[str, Any], share: float | None = None, **guard: object) -> StoredRollout:
    """A rollout in progress with these counts."""
    fields = RolloutGuard(shadow=True, **guard).model_dump(exclude={"share", "shadow"})  # type: ignore[arg-type]
    return StoredRollout(
        "rol", "a", "b", "live", 1, 2, share, fields, counts, "running", NOW, "ann", NOW + timedelta(hours=1)
    )


@pytest.mark.parametrize("at_most", [-0.9, -0.02, 0.0, 0.4])
def test_the_evidence_is_a_fair_bet(at_most: float) -> None:
    """With a mean outcome of exactly the bound, its expectation is 1, for each distribution of the outcomes; computed
    over every sequence of six."""
    for tie in (0.0, 0.3):
        win = (1 + at_most - tie) / 2
        chances = {1: win, 0: tie, -1: 1 - win - tie}
        if min(chances.values()) < 0:
            continue
        expected = math.fsum(
            math.prod(chances[one] for one in outcomes)
            * evidence(outcomes.count(1), outcomes.count(0), outcomes.count(-1), at_most)
            for outcomes in itertools.product((1, 0, -1), repeat=6)
        )
        assert expected == pytest.approx(1)


def test_the_evidence_is_a_mean_of_products() -> None:
    """Computed by hand for two wins, a tie and a loss."""
    expected = sum(
        (1 + s * 1.02 / 0.98) ** 2 * (1 + s * 0.02 / 0.98) * (1 - s) for s in STAKES
    ) / len(STAKES)  # fmt: skip
    assert evidence(2, 1, 1, -0.02) == pytest.approx(expected)
    assert evidence(0, 0, 0, 0.0) == 1
    assert math.isfinite(evidence(10**6, 0, 0, 0.0))


def test_nothing_is_decided_without_counts() -> None:
    verdict = decide(rollout({}), NOW)
    assert verdict.state is None
    assert verdict.numbers["evidence"] == {"accuracy": 1, "errors": 1, "promotion": 1}
    assert verdict.numbers["needed"] == {"accuracy": 40, "errors": 40, "promotion": 20}


@pytest.mark.parametrize(
    ("counts", "state", "reason"),
    [
        ({"accuracy": {"losses": 12}}, "rolled_back", "the candidate is less accurate"),
        ({"errors": {"losses": 12}}, "rolled_back", "the candidate fails more often"),
        ({"accuracy": {"wins": 12}}, "promoted", "the candidate is at most 0.02 less accurate"),
        ({"accuracy": {"wins": 12}, "errors": {"losses": 14}}, "rolled_back", "the candidate fails more often"),
        ({"accuracy": {"ties": 1500}}, "promoted", "the candidate is at most 0.02 less accurate"),
        ({"accuracy": {"wins": 5, "losses": 5}, "errors": {"wins": 400}}, None, ""),
    ],
)
def test_what_decides(counts: Mapping[str, Any], state: str | None, reason: str) -> None:
    """Any harm rolls back, whatever else is better; a promotion needs accuracy alone."""
    verdict = decide(rollout(counts), NOW)
    assert (verdict.state, verdict.reason.partition(":")[0]) == (state, reason)


@pytest.mark.parametrize(("at_end", "state"), [("promote", "promoted"), ("roll_back", "rolled_back")])
def test_the_end_decides(at_end: str, state: str) -> None:
    assert decide(rollout({}, at_end=at_end), NOW + timedelta(hours=1)).state == state
