"""Prepares the kernels of a GPU for a backbone before its first request."""

from collections.abc import Sequence

import torch
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded
from torch import Tensor

from peltier_adapters.artifact.label_tree import create_tree
from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.ops import backend
from peltier_adapters.ops.backend import AdapterGroup, Backend
from peltier_adapters.ops.torch import TORCH

# Kernels are compiled for short rows and for others.
_BATCHES = ((3, 1), (17,))
# The mean difference of hidden states over their mean value. A wrong kernel changes them altogether.
_TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 0.1}


@torch.inference_mode()
def warm_up(backbone: Backbone) -> None:
    """Choose the backends of bodies and of heads, which compares the ops on a GPU with torch and compiles them. Then
    compare rows without an adapter, which compiles the other kernels for the shape of `backbone`. So no batch waits for
    a compiler. If kernels fail, the log has the reason and torch is chosen."""
    chosen = [backend.choose_backend(backbone.device, dtype) for dtype in (backbone.dtype, torch.float32)]
    if any(one.name != "triton" for one in chosen):
        return
    try:
        for lengths in _BATCHES:
            encoded = [Encoded(tuple(range(length)), (0,) * length) for length in lengths]
            _compare(backbone, encoded, chosen[0])
            tree = create_tree(0, 1, [[0]]) if backbone.config.generates else None
            forward(backbone, [Row(one, tree=tree) for one in encoded])
    except Exception as error:  # Triton, its compilers and the driver have no common error
        backend.leave_out_kernels(backbone.device, error)


def _compare(backbone: Backbone, rows: Sequence[Encoded], chosen: Backend) -> None:
    found, expected = (_encode(backbone, rows, one) for one in (chosen, TORCH))
    # The comparison is false for NaN too.
    if not (found - expected).abs().mean() <= _TOLERANCES[backbone.dtype] * expected.abs().mean():
        raise RuntimeError(f"{chosen.name} computes {backbone.name} wrongly in {backbone.dtype}")


def _encode(backbone: Backbone, rows: Sequence[Encoded], chosen: Backend) -> Tensor:
    packed = backbone.pack(list(rows))
    adaptation = BatchAdaptation(backbone, [AdapterGroup(len(rows))], packed.lengths, chosen)
    return (backbone.t5.encode if backbone.config.generates else backbone.bert)(packed, adaptation).float()
