"""Chooses what computes the batches of a backbone."""

from peltier_backbone.backbone import Backbone
from peltier_backbone.modernbert.modernbert import ModernBert
from peltier_backbone.t5.t5 import T5

from peltier_adapters.batch.native_batch import NativeBatch
from peltier_adapters.batch.runner import Runner
from peltier_adapters.batch.torch_batch import TorchBatch
from peltier_adapters.ops import choice
from peltier_adapters.ops.native import NativeBackend


def choose_runner(backbone: Backbone) -> Runner:
    """The one that the backend of the adapters' ops permits: native kernels that have packed the backbone's maps,
    frames of Triton's kernels, or torch."""
    backend = choice.choose_backend(backbone.device, backbone.dtype)
    if isinstance(backend, NativeBackend) and _packed_by(backbone) is backend.library:
        return NativeBatch(backbone, backend)
    # A frame has no local layers, whose windows depend on the lengths of rows.
    if backend.name == "triton" and not isinstance(backbone.model, ModernBert):
        from peltier_adapters.batch.frame_batch import FrameBatch  # needs Triton

        return FrameBatch(backbone)
    return TorchBatch(backbone, choice.choose_layer_backend(backbone.device, backbone.dtype))


def _packed_by(backbone: Backbone) -> object:
    """The library that computes all maps of the layers."""
    model = backbone.model
    stack = model.encoder.native if isinstance(model, T5) else model.native
    return None if stack is None else stack.packed_by
