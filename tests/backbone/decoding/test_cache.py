"""Rows join and leave the decoder between two steps; each has the same states as alone."""

from collections.abc import Callable, Sequence
from itertools import count

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import Cache, EncoderKV, KVBuffer
from peltier_backbone.text.packing import Encoded
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tests.support.decoder import arrange

LENGTHS = (5, 1, 17, 30, 8, 2, 11)
STEPS = 9
CPU = torch.device("cpu")


@pytest.fixture(params=["t5", "t5_gated"])
def backbone(request: pytest.FixtureRequest) -> Backbone:
    """Both kinds of T5."""
    return request.getfixturevalue(request.param)


def _cache(backbone: Backbone) -> Cache:
    return Cache(backbone.t5.config, backbone.device, backbone.dtype)


def _rows(num: int) -> list[Encoded]:
    generator = torch.Generator().manual_seed(1)
    ids = [torch.randint(3, 58, (length,), generator=generator).tolist() for length in LENGTHS[:num]]
    return [Encoded(tuple(row), (0,) * len(row)) for row in ids]


def _texts(num: int) -> Tensor:
    """What each row is fed, [rows, steps]."""
    return torch.randint(3, 58, (num, STEPS), generator=torch.Generator().manual_seed(2))


def _remember(backbone: Backbone, rows: list[Encoded]) -> EncoderKV:
    packed = backbone.pack(rows)
    return backbone.t5.project_kv(packed, backbone.encode(packed))


@torch.inference_mode()
def _alone(backbone: Backbone, row: Encoded, text: Tensor) -> Tensor:
    """A row's decoder states by itself, [steps, hidden]."""
    cache = _cache(backbone)
    (slots,) = cache.join(_remember(backbone, [row]))
    step = arrange(backbone, slots, cache)
    return torch.cat([step(token[None]) for token in text])


@torch.inference_mode()
def test_rows_join_and_leave_between_steps(backbone: Backbone):
    """Rows begin and end at different steps, in batches of any order; slots are reused without an effect."""
    num = len(LENGTHS)
    rows, texts, cache = _rows(num), _texts(num), _cache(backbone)
    begins = [0, 0, 2, 3, 9, 5, 11]
    slots: dict[int, int] = {}
    used: set[int] = set()
    found: dict[int, list[Tensor]] = {row: [] for row in range(num)}
    for step in range(max(begins) + STEPS):
        for row in [row for row in slots if len(found[row]) == STEPS]:
            cache.leave([slots.pop(row)])
        arriving = [row for row in range(num) if begins[row] == step]
        if arriving:
            joined = cache.join(_remember(backbone, [rows[row] for row in arriving]))
            slots |= {row: own for row, (own,) in zip(arriving, joined, strict=True)}
            used.update(slots.values())
        live = sorted(slots, key=lambda row: (row * 5) % 7)  # an order of its own, as adapters sort a batch
        tokens = torch.stack([texts[row, len(found[row])] for row in live])
        states = arrange(backbone, [slots[row] for row in live], cache)(tokens)
        for row, state in zip(live, states, strict=True):
            found[row].append(state)
    assert len(used) < num, "slots were not reused"
    for row in range(num):
        torch.testing.assert_close(torch.stack(found[row]), _alone(backbone, rows[row], texts[row]), atol=1e-5, rtol=0)


@torch.inference_mode()
def test_the_lowest_free_slots_come_first(t5: Backbone):
    """So that the slots in use stay dense; copies of a row are neighbours."""
    cache, memory = _cache(t5), _remember(t5, _rows(3))
    assert cache.join(memory) == [[0], [1], [2]]
    cache.leave([1])
    assert cache.join(memory, [1, 2, 1]) == [[1], [3, 4], [5]]
    assert cache.lengths == dict.fromkeys(range(6), 0)
    cache.leave([0, 4])
    assert cache.join(_remember(t5, _rows(1))) == [[0]]


@torch.inference_mode()
def test_an_empty_cache_takes_no_memory(t5: Backbone):
    """The longest row of a day does not stay for the night."""
    cache = _cache(t5)
    cache.join(_remember(t5, _rows(4)))
    cache.leave([0, 1, 2, 3])
    assert cache.lengths == {}
    assert cache.memory.data.untyped_storage().nbytes() == cache.own.data.untyped_storage().nbytes() == 0


@torch.inference_mode()
def test_a_rows_infinities_die_with_it(backbone: Backbone):
    """NaN keys and values do not reach the next row of the slot, nor other rows of the step."""
    rows, texts, cache = _rows(3), _texts(3), _cache(backbone)
    cache.join(_remember(backbone, rows))
    for step in range(6):
        arrange(backbone, [0, 1, 2], cache)(texts[:, step])
    for store in (cache.own, cache.memory):
        store.data[:, :, 1] = torch.nan
    neighbour = arrange(backbone, [0, 1, 2], cache)(texts[:, 6])
    assert neighbour[[0, 2]].isfinite().all()
    assert neighbour[1].isnan().any()
    cache.leave([1])
    cache.join(_remember(backbone, rows[:1]))
    expected = _alone(backbone, rows[0], texts[0])[:2]
    found = [arrange(backbone, [1, 2], cache)(texts[[0, 2], step])[0] for step in range(2)]
    torch.testing.assert_close(torch.stack(found), expected, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_beams_go_on_from_their_sources(backbone: Backbone):
    """After a reorder each beam continues its source's text, another row's beams are left alone."""
    rows, cache = _rows(2), _cache(backbone)
    cache.join(_remember(backbone, rows), [3, 1])
    histories = [[3, 9], [4, 10], [5, 11], [6, 12]]
    for step in range(2):
        arrange(backbone, [0, 1, 2, 3], cache)(torch.tensor([history[step] for history in histories]))
    cache.reorder([0, 1, 2], [2, 0, 0])
    histories = [histories[2], histories[0], histories[0], histories[3]]
    found = arrange(backbone, [0, 1, 2, 3], cache)(torch.tensor([20, 21, 22, 23]))
    for beam, (history, token) in enumerate(zip(histories, (20, 21, 22, 23), strict=True)):
        alone = _alone(backbone, rows[beam // 3], torch.tensor([*history, token]))
        torch.testing.assert_close(found[beam], alone[-1], atol=1e-5, rtol=0)


@torch.inference_mode()
def test_a_slot_that_waits_loses_nothing(t5: Backbone):
    """A step over some of the slots leaves the others as they were."""
    rows, texts, cache = _rows(3), _texts(3), _cache(t5)
    cache.join(_remember(t5, rows))
    arrange(t5, [0, 1, 2], cache)(texts[:, 0])
    arrange(t5, [2], cache)(texts[[2], 1])
    found = arrange(t5, [0, 1], cache)(texts[:2, 1])
    for row in range(2):
        torch.testing.assert_close(found[row], _alone(t5, rows[row], texts[row])[1], atol=1e-5, rtol=0)


@torch.inference_mode()
def test_rows_that_cannot_join_leave_no_slots(t5: Backbone):
    """Their pass may fail after they were admitted; the others stay."""
    cache, first = _cache(t5), _remember(t5, _rows(2))
    assert cache.join(first) == [[0], [1]]
    with pytest.raises(MemoryError), cache.admit([3, 4], [2, 1]):
        raise MemoryError
    assert list(cache.lengths) == [0, 1]
    assert cache.join(first) == [[2], [3]]


class _Shortage(TorchFunctionMode):
    """Call number `number` of torch has no memory."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: Sequence[object] = (), kwargs: object = None
    ) -> object:
        self._left -= 1
        if self._left == -1:
            raise MemoryError
        return func(*args, **(kwargs or {}))


@torch.inference_mode()
def test_a_join_without_memory_changes_no_row(backbone: Backbone):
    """Whichever allocation of a join fails: the caller sees that memory lacks, the live row goes on as alone, in the
    order of steps that it had, and the rows that could not join do so later."""
    rows, texts = _rows(4), _texts(4)
    alone = [_alone(backbone, row, text) for row, text in zip(rows, texts, strict=True)]
    first, more = _remember(backbone, rows[:1]), _remember(backbone, rows[1:])
    for number in count():
        cache = _cache(backbone)
        step = arrange(backbone, *cache.join(first), cache)
        states = [step(texts[0, :1])]
        try:
            with _Shortage(number):
                cache.join(more, [1, 2, 1])
        except MemoryError:
            assert cache.lengths == {0: 1}
        else:
            break
        states.append(step(texts[0, 1:2]))
        torch.testing.assert_close(torch.cat(states), alone[0][:2], atol=1e-5, rtol=0)
        assert cache.join(more, [1, 2, 1]) == [[1], [2, 3], [4]]
        found = arrange(backbone, range(5), cache)(texts[[0, 1, 2, 2, 3], [2, 0, 0, 0, 0]])
        expected = [alone[row][step] for row, step in ((0, 2), (1, 0), (2, 0), (2, 0), (3, 0))]
        torch.testing.assert_close(found, torch.stack(expected), atol=1e-5, rtol=0)
    assert number > 10, "a join has more allocations"


@torch.inference_mode()
def test_a_first_join_without_memory_keeps_none(t5: Backbone):
    """A buffer that was allocated before another failed does not stay."""
    memory = _remember(t5, _rows(3))
    for number in count():
        cache = _cache(t5)
        try:
            with _Shortage(number):
                cache.join(memory)
        except MemoryError:
            assert cache.lengths == {}
            stores = (cache.memory.data, cache.own.data)
            assert [store.untyped_storage().nbytes() for store in stores] == [0, 0]
        else:
            break


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
