"""How often a guarded change is decided wrongly, and how many feedbacks a decision takes, by a simulation.

    .venv/bin/python benchmarks/rollouts.py [--rollouts 1000] [--feedbacks 10000] [--json runs/rollouts.json]

Each row simulates rollouts with the defaults of a guard: versions with these accuracies, of which under shadow
`equal` of the rows have the same luck. Requests also fail, as often in both versions, so that both tests run that may
roll a candidate back. What is counted of a request is what the server
counts; the server's own functions count the first rollout of each row again. The evidence is the server's formula for
all places of a rollout at once; the server's own decision is asked at the place of each decision and at the place
before.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from common.harness import Table, add_json, create_parser, write_json
from numpy.typing import NDArray
from peltier_client.protocol.rollouts import RolloutGuard
from peltier_server.extensions.rollouts.decision import HARMS, STAKES, decide, outcomes
from peltier_server.extensions.rollouts.recorder import compare_errors, match
from peltier_store.registry.extensions.rollout_records import StoredRollout
from peltier_store.registry.extensions.rollouts import MAX_WAITING, added, compared, matched

Numbers = NDArray[np.float64]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
GUARD = RolloutGuard(shadow=True)
FAILURE_RATE = 0.002
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
        # Ties change nothing if the bound is 0.
        ties = self.ties[part] if at_most else np.zeros_like(self.ties[part])
        counts = np.stack([self.wins[part], ties, self.losses[part]], axis=1)
        is_new = np.append(True, np.any(counts[1:] != counts[:-1], axis=1))
        logs = counts[is_new] @ np.stack([*rates, np.log1p(-stakes)])
        highest = logs.max(axis=1)
        mean: Numbers = highest + np.log(np.exp(logs - highest[:, None]).mean(axis=1))
        return mean[np.cumsum(is_new) - 1]

    @property
    def reversed(self) -> "Outcomes":
        """The same from the incumbent's side."""
        return Outcomes(self.losses, self.ties, self.wins)


class Draws(NamedTuple):
    """What happens to the requests of a rollout: whether each version is right and whether it fails, [2, requests] with
    the candidate first; under a share whether the candidate answers, [requests]."""

    right: NDArray[np.bool_]
    failed: NDArray[np.bool_]
    chosen: NDArray[np.bool_]


def draw(case: Case, num_feedbacks: int, random: np.random.Generator) -> Draws:
    """The requests of one rollout."""
    first, second = random.random((2, num_feedbacks))
    second = np.where(random.random(num_feedbacks) < case.equal, first, second)
    return Draws(
        np.stack([first < case.candidate, second < case.incumbent]),
        random.random((2, num_feedbacks)) < FAILURE_RATE,
        random.random(num_feedbacks) < (case.share or 0.0),
    )


def pairs(chosen: NDArray[np.bool_], takes: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The requests that are compared under a share, of those that a comparison takes: the places of the later one, of
    the candidate's and of the incumbent's, [3, pairs]."""
    waiting, of_candidate, found = deque[int](maxlen=MAX_WAITING), False, list[tuple[int, int, int]]()
    places = np.flatnonzero(takes)
    for place, is_candidate in zip(places.tolist(), chosen[places].tolist(), strict=True):
        if waiting and of_candidate != is_candidate:
            other = waiting.pop()
            found.append((place, place, other) if is_candidate else (place, other, place))
        else:
            waiting.append(place)
            of_candidate = is_candidate
    return np.array(found, dtype=np.int64).reshape(-1, 3).T


def compare(values: Numbers, compared: NDArray[np.int64]) -> Outcomes:
    """The outcomes of values [2, requests] at the places that are compared, of which the higher one is better."""
    later, candidate, incumbent = compared
    better = np.sign(values[0, candidate] - values[1, incumbent])
    found = np.full(values.shape[1], np.nan)
    found[later] = better
    return Outcomes.of(found)


def count(case: Case, draws: Draws) -> dict[str, Outcomes]:
    """The comparisons of one rollout. A failed answer is not judged."""
    if case.share is None:
        same = np.arange(draws.chosen.size)
        every, judged = (np.tile(same[takes], (3, 1)) for takes in (same >= 0, ~draws.failed.any(axis=0)))
    else:
        answered = ~np.where(draws.chosen, *draws.failed)
        every = pairs(draws.chosen, np.ones_like(answered))
        judged = pairs(draws.chosen, answered)
    return {
        "accuracy": compare(draws.right.astype(float), judged),
        "errors": compare(-draws.failed.astype(float), every),
    }


def check_counts(case: Case, draws: Draws, found: dict[str, Outcomes]) -> None:
    """The server's functions count the same of these requests."""
    rollout, waiting = started(case, {}), list[tuple[bool, bool]]()
    for place in range(draws.chosen.size):
        failed = draws.failed[:, place].tolist()
        right, is_candidate = draws.right[:, place].tolist(), bool(draws.chosen[place])
        more = list[Mapping[str, Any]]()
        if case.share is None:
            more.append(compare_errors(*failed))
            if not any(failed):
                more.append({"accuracy": compared(*right)})
        else:
            own = 0 if is_candidate else 1
            if (pair := match(waiting, is_candidate, failed[own])) is not None:
                more.append(compare_errors(*pair))
            if not failed[own]:
                judged, judged_waiting = matched(rollout, is_candidate, right[own])
                more.append(judged)
                rollout = replace(rollout, counts={**rollout.counts, "waiting": judged_waiting})
        for one in more:
            rollout = replace(rollout, counts=added(rollout.counts, one))
    for name, own in found.items():
        wins, ties, losses = outcomes(rollout.counts, name)
        simulated = tuple(int(of[-1]) for of in own)
        assert (wins, ties, losses) == simulated, f"the server counts {wins, ties, losses}, the simulation {simulated}"


def started(case: Case, counts: Mapping[str, Any]) -> StoredRollout:
    """A rollout in progress with these counts."""
    guard = GUARD.model_dump(exclude={"share", "shadow"})
    return StoredRollout("", "", "", "", 1, 2, case.share, guard, counts, "running", NOW, "", NOW + timedelta(days=1))


def check(case: Case, found: dict[str, Outcomes], place: int, state: str | None) -> None:
    """The server decides as the simulation does, at this place and not at the one before."""
    for one, expected in ((place - 1, None), (place, state)):
        if one < 0:
            continue
        counts = {
            name: {"wins": int(own.wins[one]), "ties": int(own.ties[one]), "losses": int(own.losses[one])}
            for name, own in found.items()
        }
        verdict = decide(started(case, counts), NOW)
        assert verdict.state == expected, f"the server decides {verdict}, the simulation {expected}"


def decision(found: dict[str, Outcomes], num_feedbacks: int) -> tuple[int, str | None]:
    """The place of the first decision, and what it is; None if there is none."""
    for start in range(0, num_feedbacks, BLOCK):
        part = slice(start, min(start + BLOCK, num_feedbacks))
        harmed = np.zeros(part.stop - start, bool)
        for harm in HARMS:
            if harm in found:
                harmed |= found[harm].reversed.against(0.0, part) >= -np.log(GUARD.alpha / 2)
        proven = found["accuracy"].against(-GUARD.margin, part) >= -np.log(GUARD.alpha)
        decided = np.flatnonzero(harmed | proven)
        if len(decided):
            return start + int(decided[0]), "rolled_back" if harmed[decided[0]] else "promoted"
    return num_feedbacks, None


def run(case: Case, num_rollouts: int, num_feedbacks: int) -> dict[str, Any]:
    """How rollouts of a case end, and after how many feedbacks."""
    random = np.random.default_rng(1)
    ends: dict[str | None, list[int]] = {"rolled_back": [], "promoted": [], None: []}
    for number in range(num_rollouts):
        draws = draw(case, num_feedbacks, random)
        found = count(case, draws)
        if number == 0:
            check_counts(case, draws, found)
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
