"""Captures a forward pass on a GPU. Only this module of the package needs a GPU."""

from collections.abc import Callable

import torch


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
