"""VeRA: a LoRA of random matrices that all adapters share, with factors of the task's own (Kopiczko et al. 2024, Eq. 2;
docs/methods/vera.md)."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.ops.op import FusedMatmul
from peltier_adapters.parts import lora
from peltier_adapters.parts.part import LoweringContext, PartTensors
from peltier_adapters.spec.parts import VeraSpec

# Of the inner factors where the outer ones begin at 0, as in the paper's experiments (section 4.1).
_INNER_START = 0.1
# The elements of the largest matrix that is kept: 1 MiB. Eight pairs of them are at most 16 MiB.
_MAX_KEPT = 2**18


def init(spec: VeraSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """The last factors begin at 0, so the first forward pass is the backbone's own."""
    return {
        name: torch.full(shape, _INNER_START if spec.outer and name.startswith("inner") else 0.0)
        for name, shape in spec.shapes(backbone.config).items()
    }


def lower(spec: VeraSpec, tensors: PartTensors, context: LoweringContext) -> Iterator[FusedMatmul]:
    """The ops of the LoRA that it is."""
    yield from lora.lower(spec.served, build(spec, tensors, context.backbone.config), context)


def build(spec: VeraSpec, tensors: PartTensors, config: BackboneConfig) -> dict[str, Tensor]:
    """The tensors of `spec.served`: down [K, N, before, r] = A * inner, and up [K, N, r, after] = B * outer."""
    built = {}
    for stack in spec.stacks(config):
        own = stack.find(tensors)
        inner, outer = own["inner"], own.get("outer")
        matrices = shared_matrices(spec.seed, stack.before, spec.rank, stack.after)
        a, b = (one.to(inner.device) for one in matrices)
        up = b.expand(*inner.shape[:-1], *b.shape)
        built[f"down{stack.suffix}"] = a * inner[..., None, :]
        built[f"up{stack.suffix}"] = up if outer is None else up * outer[..., None, :]
    return built


def shared_matrices(seed: int, before: int, rank: int, after: int) -> tuple[Tensor, Tensor]:
    """A [before, r] and B [r, after], uniform with variances 1 / before and 1 / r. Small ones are kept, because a
    training reads them in each step.

    The integers of Philox (Salmon et al. 2011) are the same in every release of numpy and on every processor, and a
    float32 holds 24 of their bits exactly."""
    draw = _draw_matrices if max(before, after) * rank <= _MAX_KEPT else _draw_matrices.__wrapped__
    return draw(seed, before, rank, after)


@lru_cache(maxsize=8)
def _draw_matrices(seed: int, before: int, rank: int, after: int) -> tuple[Tensor, Tensor]:
    down = _uniform(seed, 0, before * rank).view(before, rank) * (3 / before) ** 0.5
    up = _uniform(seed, 1, after * rank).view(after, rank) * (3 / rank) ** 0.5
    return down, up.T.contiguous()


def _uniform(seed: int, stream: int, count: int) -> Tensor:
    """`count` float32 numbers between -1 and 1."""
    raw = np.random.Philox(key=[seed, stream]).random_raw(count)
    return torch.from_numpy((raw >> np.uint64(40)).astype(np.float32)) / 2**23 - 1
