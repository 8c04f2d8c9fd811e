"""The first item that fits, for any sequence of additions and removals."""

from hypothesis import given
from hypothesis import strategies as st
from peltier_server.fairness.size_index import SizeIndex

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
