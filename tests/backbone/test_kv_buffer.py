"""Slots that grow on demand."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.kv_buffer import KVBuffer

CPU = torch.device("cpu")


def _store() -> KVBuffer:
    return KVBuffer((2, 3, 4), CPU, torch.float32)


@given(steps=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 70)), min_size=1, max_size=6))
def test_growth_keeps_what_is_there(steps: list[tuple[int, int]]):
    """For any order of reservations there is room, and no content is lost."""
    store = _store()
    store.reserve(1, 1)
    store.data[:, :, 0, :, 0] = 7.0
    for slots, width in steps:
        store.reserve(slots, width)
        layers, both, found_slots, heads, found_width, size = store.data.shape
        assert (layers, both, heads, size) == (2, 2, 3, 4)
        assert found_slots >= slots
        assert found_width >= width
        assert len(store.lengths) == found_slots
    assert (store.data[:, :, 0, :, 0] == 7.0).all()
    assert store.data.sum() == 7.0 * 2 * 2 * 3 * 4


def test_growing_texts_seldom_move_the_store():
    """Token by token to 200, the store is laid out anew less than ten times."""
    store, moves = _store(), set()
    for width in range(1, 201):
        store.reserve(1, width)
        moves.add(store.data.shape[4])
    assert len(moves) < 10


def test_copies_are_taken_before_they_are_written():
    """Slots that swap, and one source for two, get what the sources held."""
    store = _store()
    store.reserve(3, 2)
    store.data[:] = torch.arange(3.0)[:, None, None, None]
    store.lengths[:3] = [2, 2, 2]
    store.copy([0, 1, 2], [1, 0, 0])
    assert store.data[0, 0, :3, 0, 0, 0].tolist() == [1.0, 0.0, 0.0]


def test_a_released_store_takes_no_memory():
    """It can grow again."""
    store = _store()
    store.reserve(4, 100)
    store.release()
    assert store.data.untyped_storage().nbytes() == 0
    store.reserve(1, 3)
    assert store.lengths == [0]
