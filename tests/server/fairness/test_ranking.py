"""Keys stay in order when any of them leaves."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from peltier_server.fairness.ranking import Ranking


class Rankings(RuleBasedStateMachine):
    """A ranking beside a plain list that is sorted anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.ranking = Ranking[int, int]()
        self.expected: list[tuple[int, int, int]] = []
        self.num_put = 0

    @rule(rank=st.integers(0, 5))
    def put(self, rank: int) -> None:
        self.num_put += 1
        self.ranking.put(self.num_put, rank)
        self.expected.append((rank, self.num_put, self.num_put))

    @precondition(lambda self: self.expected)
    @rule(which=st.integers(0, 10**6))
    def remove(self, which: int) -> None:
        self.ranking.remove(self.expected.pop(which % len(self.expected))[2])

    @rule()
    def clear(self) -> None:
        self.ranking.clear()
        self.expected.clear()

    @invariant()
    def the_first_is_the_smallest(self) -> None:
        expected = min(self.expected, default=(None, None, None))
        assert self.ranking.first == expected[2]
        assert len(self.ranking) == len(self.expected)
        assert all(self.ranking.rank(key) == rank for rank, _, key in self.expected)


TestRankings = Rankings.TestCase
TestRankings.settings = settings(stateful_step_count=40)


def test_those_who_left_take_no_room() -> None:
    """A key that never comes first may stand behind any number that come and go."""
    ranking = Ranking[int, int]()
    ranking.put(-1, 0)
    for key in range(1000):
        ranking.put(key, 1)
        ranking.remove(key)
    assert len(ranking._heap) < 50
    assert ranking.first == -1
