"""Which batches get a graph, and for how long. The batches have no data; what graphs compute is in
`gpu/kernels/test_graphs.py`."""

import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.gpu.frame import Shape
from peltier_adapters.gpu.graphs import MAX_TOKENS, round_shape, round_tokens, round_up
from peltier_adapters.ops import choice
from peltier_adapters.residency.bank import Resident
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded

pytest.importorskip("triton", reason="Triton has no build for this machine")

from peltier_adapters.gpu.backend import TritonBackend
from peltier_adapters.gpu.graphs import Graphs

from tests.adapters_store.device_work import META, counted, residents, without_data

Run = Callable[[], None]


@given(count=st.integers(1, MAX_TOKENS))
def test_tokens_are_rounded_up_by_less_than_a_quarter(count: int):
    """Pad tokens cost what others do."""
    rounded = round_tokens(count)
    assert count <= rounded < max(count * 1.25, count + 32)
    assert round_tokens(rounded) == rounded


def test_buckets_are_few():
    assert len({round_tokens(count) for count in range(1, MAX_TOKENS + 1)}) <= 28
    assert {round_up(count) for count in range(1, 129)} == {2**power for power in range(8)}


@given(sizes=st.tuples(*[st.integers(1, MAX_TOKENS)] * 3))
def test_a_shape_is_covered_by_its_bucket(sizes: tuple[int, int, int]):
    shape = Shape(*sizes, frozenset(), frozenset())
    rounded = round_shape(shape)
    assert rounded is not None
    assert rounded.covers(shape)
    assert round_shape(rounded) in (rounded, None)


def test_a_batch_that_is_too_large_has_no_bucket():
    """It keeps the device busy without a graph."""
    assert round_shape(Shape(MAX_TOKENS + 1, 1, 1, frozenset(), frozenset())) is None


@pytest.fixture
def empty(bert: Backbone, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backbone]:
    """A backbone without data, whose kernels are launched nowhere."""
    made = {dtype: TritonBackend(META, dtype) for dtype in (torch.float32, torch.bfloat16)}
    monkeypatch.setattr(choice, "choose_backend", lambda device, dtype: made[dtype])
    with counted():
        yield without_data(bert, bert.config)


class Captures:
    """Takes a call for its own replay, and counts both."""

    def __init__(self) -> None:
        self.made, self.replayed = 0, 0

    def __call__(self, run: Run) -> Run:
        self.made += 1

        def replay() -> None:
            self.replayed += 1
            run()

        return replay


def _encoded(length: int) -> Encoded:
    return Encoded((5,) * length, (0,) * length)


def _rows(*lengths: int) -> list[Row]:
    return [Row(_encoded(length)) for length in lengths]


def _residents(backbone: Backbone, *presets: str) -> list[Resident]:
    numbers = count()
    return [one for name in presets for one in residents(backbone, name, 1, numbers)]


def _run(backbone: Backbone, graphs: Graphs, batches: Sequence[Sequence[Row]]) -> None:
    for rows in batches:
        forward(backbone, rows, graphs=graphs)


def test_a_shape_is_captured_when_it_has_come_often_enough(empty: Backbone):
    """Rare ones are not worth it; from then on every such batch is a replay."""
    captures = Captures()
    graphs, made = Graphs(empty, captures, capture_after=3), []
    for _ in range(5):
        _run(empty, graphs, [_rows(4, 9)])
        made.append((captures.made, captures.replayed))
    assert made == [(0, 0), (0, 0), (1, 1), (1, 2), (1, 3)]


def test_a_graph_serves_any_adapters_of_its_banks(empty: Backbone):
    """Also fewer rows, shorter ones, and only some of the banks that have occurred before its capture."""
    lora, prefix, compacter = _residents(empty, "lora", "prefix", "compacter")
    captures = Captures()
    graphs = Graphs(empty, captures, capture_after=2)
    batches = [[Row(_encoded(9), one)] for one in (lora, prefix)]
    others = [[Row(_encoded(3), prefix), Row(_encoded(4), lora)], _rows(2, 3)]
    _run(empty, graphs, [*batches, *others])
    assert (captures.made, captures.replayed) == (1, 3)
    _run(empty, graphs, [[Row(_encoded(9), compacter)]] * 2)
    assert (captures.made, captures.replayed) == (2, 4)
    assert len(graphs) == 1  # the newer one serves the batches of both


def test_a_frequent_shape_takes_the_place_of_the_least_recently_used(empty: Backbone):
    """There are never more than the bound, one that comes now and then replaces none, and what goes is free."""
    captures = Captures()
    graphs = Graphs(empty, captures, max_graphs=2, capture_after=1)
    _run(empty, graphs, [_rows(length) for length in (8, 40, 8, *[70] * 7)])
    assert (len(graphs), captures.made) == (2, 2)
    kept, gone = (weakref.ref(graph.frame) for graph in reversed(graphs._graphs.values()))
    _run(empty, graphs, [_rows(70)])
    assert (len(graphs), captures.made) == (2, 3)
    assert kept() is not None
    assert gone() is None


def test_a_failed_capture_is_the_last(empty: Backbone, caplog: pytest.LogCaptureFixture):
    """Batches of all shapes then run without graphs, also those that had one, and the log says why."""
    tried = []

    def refuse(run: Run) -> Run:
        tried.append(run)
        if len(tried) > 1:
            raise torch.OutOfMemoryError("no memory")
        return run

    graphs = Graphs(empty, refuse, capture_after=1)
    with caplog.at_level(logging.WARNING):
        _run(empty, graphs, [_rows(8), *[_rows(200), _rows(8), _rows(1000)] * 2])
    assert (len(tried), len(graphs), len(caplog.records)) == (2, 0, 1)


@pytest.mark.parametrize(("length", "record_gates"), [(8, True), (4097, False)])
def test_some_batches_have_no_graph(length: int, record_gates: bool, empty: Backbone):
    """A graph returns nothing but logits, and large batches do not wait for the host."""
    captures = Captures()
    graphs = Graphs(empty, captures, capture_after=1)
    forward(empty, _rows(length), record_gates=record_gates, graphs=graphs)
    assert captures.made == 0
