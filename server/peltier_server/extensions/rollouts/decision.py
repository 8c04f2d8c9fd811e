"""Decides a guarded change by what was counted: promote the candidate, roll it back, or wait.

Every comparison of the two versions has an outcome: +1 if the candidate is better, 0, or -1 if it is worse. Under
shadow both versions answer the same row. Under a share, judged rows are compared in the order of their arrival, one
of each version, as Wald does (Sequential Analysis, 1947, chapter 6).

The evidence against the hypothesis that the mean outcome is at most m is the wealth of a gambler who bets against it,
as in Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting (arXiv 2010.09686). A gambler who
always bets the share s of the wealth, 0 < s < 1, multiplies it by 1 + s (x - m) / (1 + m) at the outcome x. That is
never negative, because x is -1 at least, and 1 at most on average, whatever came before. So the wealth is a
supermartingale that begins at 1, and so is its average over a grid of stakes. By Ville's inequality it ever reaches
1/alpha with probability alpha at most, however often one looks. It depends on the counts of the outcomes alone, so
replicas need only sums.
"""

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from peltier_client.protocol.rollouts import RolloutGuard
from peltier_store.registry.extensions.rollout_records import StoredRollout

# Small stakes find small differences in much data, large ones find large differences early.
STAKES = tuple(0.005 * 180 ** (place / 15) for place in range(16))
# Larger values do not fit in JSON.
_MAX_LOG = 690.0


# The ways in which a candidate may be worse, by what is counted. The test of each uses half of `alpha`.
HARMS = {"accuracy": "the candidate is less accurate", "errors": "the candidate fails more often"}


class Verdict(NamedTuple):
    """The decision: `promoted`, `rolled_back`, or None to wait; with its reason, and the numbers behind it."""

    state: Literal["promoted", "rolled_back"] | None
    reason: str
    numbers: Mapping[str, Any]


def evidence(wins: int, ties: int, losses: int, at_most: float) -> float:
    """The evidence that the mean outcome is above `at_most`, which is between -1 and 1: 1 is none."""
    logs = [
        wins * math.log1p(stake * (1 - at_most) / (1 + at_most))
        + ties * math.log1p(-stake * at_most / (1 + at_most))
        + losses * math.log1p(-stake)
        for stake in STAKES
    ]
    highest = max(logs)
    mean = math.fsum(math.exp(one - highest) for one in logs) / len(logs)
    return math.exp(min(highest + math.log(mean), _MAX_LOG))


def decide(rollout: StoredRollout, now: datetime) -> Verdict:
    """The decision about a rollout that is in progress."""
    guard = RolloutGuard.model_validate({**rollout.guard, "share": rollout.share, "shadow": rollout.share is None})
    found = dict(_evidence(rollout, guard))
    needed = {**dict.fromkeys(HARMS, 2 / guard.alpha), "promotion": 1 / guard.alpha}
    rounded = {name: float(f"{value:.4g}") for name, value in found.items()}
    numbers = {"counts": public(rollout.counts), "evidence": rounded, "needed": needed}
    for harm, sentence in HARMS.items():
        if found[harm] >= needed[harm]:
            what = f"{sentence}: {_shown(harm, rollout.counts)}"
            return Verdict("rolled_back", f"{what} ({_compared(numbers, harm)})", numbers)
    if found["promotion"] >= needed["promotion"]:
        what = f"the candidate is at most {guard.margin:g} less accurate: {_shown('accuracy', rollout.counts)}"
        return Verdict("promoted", f"{what} ({_compared(numbers, 'promotion')})", numbers)
    if now < rollout.ends_at:
        return Verdict(None, "", numbers)
    reason = f"nothing was proven within {guard.max_hours:g} hours, and at_end is {guard.at_end}"
    return Verdict("promoted" if guard.at_end == "promote" else "rolled_back", reason, numbers)


def _evidence(rollout: StoredRollout, guard: RolloutGuard) -> Iterator[tuple[str, float]]:
    """The evidence for each harm, and for a promotion."""
    for harm in HARMS:
        wins, ties, losses = outcomes(rollout.counts, harm)
        yield harm, evidence(losses, ties, wins, 0.0)
    yield "promotion", evidence(*outcomes(rollout.counts, "accuracy"), -guard.margin)


def _compared(numbers: Mapping[str, Any], name: str) -> str:
    return f"evidence {numbers['evidence'][name]:g}, {numbers['needed'][name]:g} needed"


def outcomes(counts: Mapping[str, Any], what: str) -> tuple[int, int, int]:
    """How often the candidate was better, as good and worse in `what`."""
    own = counts.get(what, {})
    return own.get("wins", 0), own.get("ties", 0), own.get("losses", 0)


def public(counts: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """The counts without those that only the next comparison needs."""
    return {name: dict(value) for name, value in counts.items() if name != "waiting"}


def _shown(harm: str, counts: Mapping[str, Any]) -> str:
    arms = counts.get("candidate", {}), counts.get("incumbent", {})
    if harm == "accuracy":
        candidate, incumbent = (f"{arm.get('right', 0)} of {arm.get('judged', 0)}" for arm in arms)
        return f"{candidate} judged answers are right, and {incumbent} of the incumbent"
    wins, ties, losses = outcomes(counts, harm)
    return f"it was worse in {losses} and better in {wins} of {wins + ties + losses} comparisons"
