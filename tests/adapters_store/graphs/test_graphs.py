"""Which batches get a graph, and for how long. Rows without an adapter need no kernel, so these run anywhere; what
graphs compute of adapters is in `kernels/test_graphs.py`."""

import logging
import weakref
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded

pytest.importorskip("triton", reason="Triton has no build for this machine")

from peltier_adapters.graphs.graphs import Graphs

Run = Callable[[], None]


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


def _rows(*lengths: int) -> list[Row]:
    return [Row(Encoded(tuple(range(5, 5 + length)), (0,) * length)) for length in lengths]


def test_a_shape_is_captured_when_it_has_come_often_enough(bert: Backbone):
    """Rare ones are not worth it; from then on every such batch is a replay."""
    captures = Captures()
    graphs = Graphs(bert, captures, capture_after=3)
    made = []
    for _ in range(5):
        forward(bert, _rows(4, 9), graphs=graphs)
        made.append((captures.made, captures.replayed))
    assert made == [(0, 0), (0, 0), (1, 1), (1, 2), (1, 3)]


@given(batches=st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=5), min_size=1, max_size=4))
def test_replays_answer_as_the_forward_does(batches: list[list[int]], bert: Backbone):
    """For any sequence of batches, with any leftovers of the batch before."""
    graphs = Graphs(bert, Captures(), capture_after=1)
    for lengths in batches:
        rows = _rows(*lengths)
        for one, other in zip(forward(bert, rows, graphs=graphs), forward(bert, rows), strict=True):
            torch.testing.assert_close(one.logits, other.logits, rtol=1e-5, atol=1e-5)


def test_a_frequent_shape_takes_the_place_of_the_least_recently_used(bert: Backbone):
    """There are never more than the bound, one that comes now and then replaces none, and what goes is free."""
    captures = Captures()
    graphs = Graphs(bert, captures, max_graphs=2, capture_after=1)
    for length in (8, 40, 8, *[70] * 7):
        forward(bert, _rows(length), graphs=graphs)
    assert (len(graphs), captures.made) == (2, 2)
    kept, gone = (weakref.ref(graph.frame) for graph in reversed(graphs._graphs.values()))
    forward(bert, _rows(70), graphs=graphs)
    assert (len(graphs), captures.made) == (2, 3)
    assert kept() is not None
    assert gone() is None


def test_a_shape_that_cannot_be_captured_runs_without_a_graph(bert: Backbone, caplog: pytest.LogCaptureFixture):
    """It answers, it is tried once, and the log says why."""
    tried = []

    def refuse(run: Run) -> Run:
        tried.append(run)
        raise torch.OutOfMemoryError("no memory")

    graphs = Graphs(bert, refuse, capture_after=1)
    with caplog.at_level(logging.WARNING):
        outputs = [forward(bert, _rows(8), graphs=graphs) for _ in range(3)]
    assert torch.equal(outputs[0][0].logits, forward(bert, _rows(8))[0].logits)
    assert (len(tried), len(graphs), len(caplog.records)) == (1, 0, 1)


def test_recorded_gates_are_computed_without_graphs(bert: Backbone):
    """A graph returns nothing but logits."""
    captures = Captures()
    forward(bert, _rows(8), record_gates=True, graphs=Graphs(bert, captures, capture_after=1))
    assert captures.made == 0
