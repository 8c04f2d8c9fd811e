"""Chooses what computes the batches of a backbone."""

from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.deberta_config import DebertaConfig

from peltier_adapters.batch.packed_batch import NativeBatch, TorchBatch
from peltier_adapters.batch.runner import Runner
from peltier_adapters.ops import choice
from peltier_adapters.ops.native import NativeBackend


def choose_runner(backbone: Backbone) -> Runner:
    """The one that the backend of the adapters' ops permits: native kernels that have packed the backbone's maps,
    frames of Triton's kernels, or torch."""
    backend = choice.choose_backend(backbone.device, backbone.dtype)
    if isinstance(backend, NativeBackend) and _packed_by(backbone) is backend.library:
        return NativeBatch(backbone, backend)
    if has_frames(backbone):
        from peltier_adapters.gpu.frame_batch import FrameBatch  # needs Triton

        return FrameBatch(backbone)
    return TorchBatch(backbone)


def has_frames(backbone: Backbone) -> bool:
    """Whether Triton's kernels compute batches. They have no attention with queries and keys of distances (DeBERTa)."""
    is_triton = choice.choose_backend(backbone.device, backbone.dtype).name == "triton"
    return is_triton and not isinstance(backbone.config, DebertaConfig)


def _packed_by(backbone: Backbone) -> object:
    """The library that computes all maps of the layers."""
    return None if backbone.stacks is None else backbone.stacks.encoder.packed_by
