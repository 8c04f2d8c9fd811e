"""Slots that grow on demand."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.decoding.kv_buffer import KVBuffer
from torch import Tensor

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


def test_tokens_are_written_to_their_keys():
    """With native kernels and without them, the same: each token of a layer goes to its number, all else stays."""
    tokens = torch.arange(3 * 24.0).view(3, 24)

    def written(*, native: bool) -> Tensor:
        store = _store()
        store.reserve(4, 5)
        first, third = store.first_keys([1, 3])
        with torch.inference_mode(native):  # while gradients are recorded, torch computes
            store.write(1, tokens, torch.tensor([first + 2, third, 1]))
        return store.data

    found = written(native=True)
    assert torch.equal(found, written(native=False))
    assert torch.equal(found[1, :, [1, 3, 0], :, [2, 0, 1]].flatten(1), tokens)
    assert found.count_nonzero() == 3 * 24 - 1


def test_a_released_store_takes_no_memory():
    """It can grow again."""
    store = _store()
    store.reserve(4, 100)
    store.release()
    assert store.data.untyped_storage().nbytes() == 0
    store.reserve(1, 3)
    assert store.lengths == [0]
