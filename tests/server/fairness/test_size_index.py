"""The first item that fits, for any sequence of additions and removals."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from peltier_server.fairness.size_index import Ranking, SizeIndex

MOVES = st.lists(
    st.tuples(st.sampled_from(["put", "move", "remove"]), st.integers(0, 10**6), st.integers(1, 14)), max_size=60
)


@given(moves=MOVES, max_size=st.integers(1, 12), room=st.integers(1, 12))
def test_the_first_that_fits(moves: list[tuple[str, int, int]], max_size: int, room: int) -> None:
    """Of all, and of those within any size, as a search of all would find it."""
    heads, room = SizeIndex[int](max_size), min(room, max_size)
    there: dict[int, tuple[int, tuple[int, int]]] = {}
    for number, (move, draw, size) in enumerate(moves):
        one = sorted(there)[draw % len(there)] if there else None
        if move == "put" or one is None:
            there[number] = (size, (draw % 7, number))
            heads.put(number, *there[number])
        elif move == "move":
            before, there[one] = there[one][0], (size, (draw % 7, number))
            heads.move(one, before, *there[one])
        else:
            heads.remove(one, there.pop(one)[0])
        assert heads.first == min(there, key=lambda key: there[key][1], default=None)
        fitting = [key for key, (size, _) in there.items() if size <= room]
        assert heads.first_within(room) == min(fitting, key=lambda key: there[key][1], default=None)
    assert len(heads._nodes) <= len(there) * heads._num_leaves.bit_length()


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
