"""VeRA in the reference implementations: the LoRA A diag(inner), B diag(outer) with a scale of 1."""

from typing import Any

import torch
from peltier_adapters.parts.vera import shared_matrices
from peltier_adapters.spec.parts import LoraSpec, VeraSpec
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor


def read_vera(parts: dict[str, Any], tensors: dict[str, Tensor], config: BackboneConfig) -> None:
    """Adds the LoRA to `parts` and its tensors to `tensors` [K, N, …], in place of those of VeRA, if it is there."""
    vera = parts.get("vera")
    if not isinstance(vera, VeraSpec):
        return
    parts["lora"] = LoraSpec(targets=vera.targets, rank=vera.rank, skip=vera.skip, alpha=vera.rank)
    for stack in vera.stacks(config):
        inner = tensors.pop(f"vera.inner{stack.suffix}")
        matrices = shared_matrices(vera.seed, stack.before, vera.rank, stack.after)
        a, b = (matrix.to(inner.dtype) for matrix in matrices)
        outer = tensors.pop(f"vera.outer{stack.suffix}") if vera.outer else inner.new_ones(*inner.shape[:2], len(b.T))
        tensors[f"lora.down{stack.suffix}"] = a @ inner.diag_embed()
        tensors[f"lora.up{stack.suffix}"] = b @ torch.diag_embed(outer)
