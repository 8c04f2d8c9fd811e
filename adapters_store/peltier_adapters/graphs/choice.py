"""Where batches may be replayed from graphs. Imports neither Triton nor anything that does."""

from typing import TYPE_CHECKING

from peltier_backbone.load import Backbone

from peltier_adapters.ops import backend

if TYPE_CHECKING:
    from peltier_adapters.graphs.graphs import Graphs


def can_capture(backbone: Backbone) -> bool:
    """An encoder on a GPU with Triton's kernels; torch's own loops over adapters know their lengths on the host."""
    return not backbone.config.generates and backend.choose_backend(backbone.device, backbone.dtype).name == "triton"


def create_graphs(backbone: Backbone) -> "Graphs | None":
    """The graphs of one thread, none yet captured; None where there can be none."""
    if not can_capture(backbone):
        return None
    from peltier_adapters.graphs.capture import CudaCapture
    from peltier_adapters.graphs.graphs import Graphs  # needs Triton

    return Graphs(backbone, CudaCapture(backbone.device))
