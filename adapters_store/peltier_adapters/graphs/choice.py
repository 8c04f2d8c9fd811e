"""Decides whether batches may be replayed from graphs. The import of this module does not import Triton."""

from typing import TYPE_CHECKING

from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.bert import Bert

from peltier_adapters.ops import choice

if TYPE_CHECKING:
    from peltier_adapters.graphs.graphs import Graphs


def can_capture(backbone: Backbone) -> bool:
    """Whether batches of `backbone` can be captured: it is an encoder on a GPU and the Triton backend is used. The
    torch backend loops over adapters with lengths on the host, so it cannot be captured."""
    return isinstance(backbone.model, Bert) and choice.choose_backend(backbone.device, backbone.dtype).name == "triton"


def create_graphs(backbone: Backbone) -> "Graphs | None":
    """The graphs of one thread, without any capture yet; None if `backbone` cannot be captured."""
    if not can_capture(backbone):
        return None
    from peltier_adapters.graphs.capture import CudaCapture
    from peltier_adapters.graphs.graphs import Graphs  # needs Triton

    return Graphs(backbone, CudaCapture(backbone.device))
