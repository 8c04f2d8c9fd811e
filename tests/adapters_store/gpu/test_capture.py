"""Which devices and settings use graphs."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from peltier_adapters.gpu import capture as choice
from peltier_adapters.gpu.capture import CudaCapture
from peltier_adapters.ops import choice as ops_choice
from peltier_backbone.backbone import Backbone

from tests.adapters_store import fake_card
from tests.adapters_store.fake_card import Card


class FakeGraph:
    """Replays nothing, but can be told from other things."""

    def replay(self) -> None:
        """Nothing."""


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    """A card that is not there, and says when it captures."""
    card = fake_card.install(monkeypatch)

    @contextmanager
    def graph(graph: FakeGraph, *, pool: str, stream: fake_card.Stream, capture_error_mode: str) -> Iterator[None]:
        card.log.append(("capture", pool, stream.name, capture_error_mode))
        yield
        card.log.append(("captured",))

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    return card


def test_a_call_runs_once_before_it_is_captured(card: Card):
    """On a stream that has waited for the inputs, in the shared pool; other threads may continue meanwhile."""
    capture = CudaCapture(torch.device("cuda"))
    replay = capture(lambda: card.log.append(("run", card.current)))
    assert card.log == [
        ("copy waits for", "compute"), ("run", "copy"), ("capture", "pool", "copy", "thread_local"), ("run", "copy"),
        ("captured",), ("compute waits for", "copy"),
    ]  # fmt: skip
    assert isinstance(replay.__self__, FakeGraph)  # type: ignore[attr-defined]


def test_a_capture_that_fails_leaves_the_stream_as_it_was(card: Card):
    """The batch continues without a graph on the usual stream."""

    def fail() -> None:
        raise RuntimeError("an operation that cannot be captured")

    with pytest.raises(RuntimeError, match="cannot be captured"):
        CudaCapture(torch.device("cuda"))(fail)
    assert card.current == "compute"


@pytest.mark.parametrize(
    ("family", "kernels", "expected"), [("bert", True, True), ("bert", False, False), ("t5", True, False)]
)
def test_an_encoder_with_kernels_is_captured(family, kernels, expected, request, monkeypatch):
    """T5 decodes step by step, and torch's own products ask the host where groups end."""
    chosen = SimpleNamespace(name="triton" if kernels else "torch")
    monkeypatch.setattr(ops_choice, "choose_backend", lambda device, dtype: chosen)
    assert choice.can_capture(request.getfixturevalue(family)) is expected


def test_the_cpu_has_no_graphs(bert: Backbone):
    assert choice.create_graphs(bert) is None
