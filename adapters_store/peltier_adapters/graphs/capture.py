"""Captures a forward on a card. Nothing else of this folder needs one."""

from collections.abc import Callable

import torch


class CudaCapture:
    """`graphs.Capture` for all graphs of a thread, which share one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        """Runs it, so that kernels are compiled and libraries have their workspaces, and then captures it."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        # Around the capture too: one that fails leaves its own stream behind as the current one.
        with torch.cuda.stream(self._stream):
            run()
            graph = torch.cuda.CUDAGraph()
            # Other threads load adapters meanwhile, which is no business of this capture.
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                run()
        current.wait_stream(self._stream)
        return graph.replay
