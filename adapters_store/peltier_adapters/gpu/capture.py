"""Decides whether batches may be replayed from graphs. The import of this module does not import Triton."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.bert import Bert

from peltier_adapters.batch.choice import has_frames

if TYPE_CHECKING:
    from peltier_adapters.gpu.graphs import Graphs


class CudaCapture:
    """Implements `graphs.Capture` for all graphs of a thread. The graphs share one memory pool."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        """Calls `run` once, so that kernels are compiled and libraries allocate workspaces, and then captures it.
        Returns the replay."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        # The block also covers the capture, because a failed capture leaves its own stream as the current one.
        with torch.cuda.stream(self._stream):
            run()
            graph = torch.cuda.CUDAGraph()
            # Other threads load adapters meanwhile. In mode "thread_local" their calls do not disturb the capture.
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                run()
        current.wait_stream(self._stream)
        return graph.replay


def can_capture(backbone: Backbone) -> bool:
    """Whether batches of `backbone` can be captured: it is a BERT or a relative, and frames compute its batches. The
    torch backend loops over adapters with lengths on the host, so it cannot be captured."""
    return isinstance(backbone.model, Bert) and has_frames(backbone)


def create_graphs(backbone: Backbone) -> "Graphs | None":
    """The graphs of one thread, without any capture yet; None if `backbone` cannot be captured."""
    if not can_capture(backbone):
        return None
    from peltier_adapters.gpu.graphs import Graphs  # needs Triton

    return Graphs(backbone, CudaCapture(backbone.device))
