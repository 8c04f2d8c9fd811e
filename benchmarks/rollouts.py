"""How often a guarded change is decided wrongly, and how many feedbacks a decision takes, by a simulation.

    .venv/bin/python benchmarks/rollouts.py [--rollouts 1000] [--feedbacks 10000] [--json runs/rollouts.json]

Each row simulates rollouts with the defaults of a guard: versions with these accuracies, of which under shadow
`equal` of the rows have the same luck. Each request also has a failure and a time, which are distributed alike in
both versions, so that all tests run that may roll a candidate back. The evidence is the server's formula for all
places of a rollout at once; the server's own decision is asked at the place of each decision and at the place before.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from common.harness import Table, add_json, create_parser, write_json
from numpy.typing import NDArray
from peltier_client.protocol import RolloutGuard
from peltier_server.rollouts.decision import HARMS, STAKES, decide
from peltier_store.registry import StoredRollout

Numbers = NDArray[np.float64]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAILURE_RATE = 0.002
MAX_WAITING = 64
# The evidence is computed for so many feedbacks at a time, until there is a decision.
BLOCK = 500


class Case(NamedTuple):
    """One row of the table. Without a share the candidate shadows, and `equal` of the rows have the same luck."""

    incumbent: float
    candidate: float
    share: float | None = None
    equal: float = 0.0


CASES = (
    Case(0.90, 0.90),
    Case(0.90, 0.90, equal=0.7),
    Case(0.90, 0.90, share=0.5),
    Case(0.90, 0.87),
    Case(0.90, 0.87, equal=0.7),
    Case(0.90, 0.87, share=0.5),
    Case(0.90, 0.87, share=0.1),
    Case(0.90, 0.92),
    Case(0.90, 0.92, equal=0.7),
    Case(0.70, 0.80, equal=0.7),
    Case(0.90, 0.50, equal=0.5),
)


class Outcomes(NamedTuple):
    """The wins, ties and losses of a rollout after each feedback: [feedbacks]."""

    wins: Numbers
    ties: Numbers
    losses: Numbers

    @classmethod
    def of(cls, outcomes: Numbers) -> "Outcomes":
        """Those of these outcomes, of which NaN is none."""
        return cls(*(np.cumsum(outcomes == one).astype(float) for one in (1, 0, -1)))

    def against(self, at_most: float, part: slice) -> Numbers:
        """The logarithm of the evidence that the mean outcome is above `at_most`, after each feedback of a part."""
        stakes = np.array(STAKES)
        rates = np.log1p(stakes * (1 - at_most) / (1 + at_most)), np.log1p(-stakes * at_most / (1 + at_most))
        counts = np.stack([self.wins[part], self.ties[part], self.losses[part]], axis=1)
        # Many outcomes change nothing.
        counts, places = np.unique(counts, axis=0, return_inverse=True)
        logs = counts @ np.stack([*rates, np.log1p(-stakes)])
        highest = logs.max(axis=1)
        mean: Numbers = highest + np.log(np.exp(logs - highest[:, None]).mean(axis=1))
        return mean[places.reshape(-1)]

    @property
    def reversed(self) -> "Outcomes":
        """The same from the incumbent's side."""
        return Outcomes(self.losses, self.ties, self.wins)


def compare(case: Case, candidate: Numbers, incumbent: Numbers, chosen: NDArray[np.bool_]) -> Numbers:
    """The outcome that each feedback adds; NaN where it only waits. Under a share each row has the answer of one
    version, the candidate's where it is `chosen`."""
    if case.share is None:
        return np.sign(candidate - incumbent)
    outcomes, waiting, of_candidate = np.full(len(chosen), np.nan), list[float](), False
    for place, is_candidate in enumerate(chosen):
        value = candidate[place] if is_candidate else incumbent[place]
        if waiting and of_candidate != is_candidate:
            other = waiting.pop()
            outcomes[place] = np.sign(value - other if is_candidate else other - value)
        else:
            waiting, of_candidate = [*waiting, value][-MAX_WAITING:], bool(is_candidate)
    return outcomes


def simulate(case: Case, num_feedbacks: int, random: np.random.Generator) -> dict[str, Outcomes]:
    """The comparisons of one rollout."""
    first, second = random.random((2, num_feedbacks))
    second = np.where(random.random(num_feedbacks) < case.equal, first, second)
    chosen = random.random(num_feedbacks) < (case.share or 0.0)
    right = (first < case.candidate).astype(float), (second < case.incumbent).astype(float)
    whole = (random.random((2, num_feedbacks)) >= FAILURE_RATE).astype(float)
    seconds = random.lognormal(0, 0.5, (2, num_feedbacks))
    slowdown = RolloutGuard(shadow=True).max_slowdown
    # The better one is higher: levels of time, of which the next is slower by more than the slowdown.
    speed = -np.floor(np.log(seconds) / np.log(slowdown))
    found = {"accuracy": right, "errors": (whole[0], whole[1]), "latency": (speed[0], speed[1])}
    return {name: Outcomes.of(compare(case, *values, chosen)) for name, values in found.items()}


def check(case: Case, found: dict[str, Outcomes], place: int, state: str | None) -> None:
    """The server decides as the simulation does, at this place and not at the one before."""
    for one, expected in ((place - 1, None), (place, state)):
        if one < 0:
            continue
        counts = {
            name: {"wins": int(own.wins[one]), "ties": int(own.ties[one]), "losses": int(own.losses[one])}
            for name, own in found.items()
        }
        guard = RolloutGuard(shadow=True).model_dump(exclude={"share", "shadow"})
        rollout = StoredRollout(
            "", "", "", "", 1, 2, case.share, guard, counts, "running", NOW, "", NOW + timedelta(days=1)
        )
        verdict = decide(rollout, NOW)
        assert verdict.state == expected, f"the server decides {verdict}, the simulation {expected}"


def decision(found: dict[str, Outcomes], num_feedbacks: int) -> tuple[int, str | None]:
    """The place of the first decision, and what it is; None if there is none."""
    guard = RolloutGuard(shadow=True)
    for start in range(0, num_feedbacks, BLOCK):
        part = slice(start, min(start + BLOCK, num_feedbacks))
        harmed = np.zeros(part.stop - start, bool)
        for harm in HARMS:
            if harm.name in found:
                harmed |= found[harm.name].reversed.against(0.0, part) >= -np.log(guard.alpha * harm.alpha_share)
        proven = found["accuracy"].against(-guard.margin, part) >= -np.log(guard.alpha)
        decided = np.flatnonzero(harmed | proven)
        if len(decided):
            return start + int(decided[0]), "rolled_back" if harmed[decided[0]] else "promoted"
    return num_feedbacks, None


def run(case: Case, num_rollouts: int, num_feedbacks: int) -> dict[str, Any]:
    """How rollouts of a case end, and after how many feedbacks."""
    random = np.random.default_rng(1)
    ends: dict[str | None, list[int]] = {"rolled_back": [], "promoted": [], None: []}
    for _ in range(num_rollouts):
        found = simulate(case, num_feedbacks, random)
        place, state = decision(found, num_feedbacks)
        if state is not None:
            check(case, found, place, state)
        ends[state].append(place + 1)
    return {**case._asdict(), "rollouts": num_rollouts, **dict(summaries(ends))}


def summaries(ends: dict[str | None, list[int]]) -> Iterator[tuple[str, float | None]]:
    """The number of each end, and the median and the ninth decile of the feedbacks until it."""
    for state, places in ends.items():
        name = state or "undecided"
        yield name, len(places)
        for share in (50, 90):
            yield f"{name}_{share}", float(np.percentile(places, share)) if places and state else None


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--rollouts", type=int, default=1000, help="rollouts of each case")
    parser.add_argument("--feedbacks", type=int, default=10_000, help="feedbacks after which a rollout is undecided")
    add_json(parser, "the answers")
    asked = parser.parse_args()
    heads = ("back", "50 %", "90 %", "promoted", "50 %", "90 %", "undecided")
    table, rows = Table("incumbent, candidate", "how", *heads, first=20), []
    for case in CASES:
        # With a small share the candidate gets as many fewer, so that a rollout takes longer.
        longer = 5 if case.share == 0.1 else 1
        row = run(case, max(1, asked.rollouts // longer), asked.feedbacks * longer)
        rows.append(row)
        how = f"shadow {case.equal:.1f}" if case.share is None else f"share {case.share:.1f}"
        names = (
            "rolled_back",
            "rolled_back_50",
            "rolled_back_90",
            "promoted",
            "promoted_50",
            "promoted_90",
            "undecided",
        )
        shown = ("-" if row[name] is None else f"{row[name]:,.0f}" for name in names)
        table.row(f"{case.incumbent:.2f}, {case.candidate:.2f}", how, *shown)
    write_json(asked, rows)


if __name__ == "__main__":
    main()
