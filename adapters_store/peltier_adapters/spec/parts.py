"""Parts of adapters: one frozen spec for each part, and the exact shapes of its tensors. Imports no torch.

Shapes are without the slot dimension of a bank. Letters: S sites, B blocks (BERT's layers; T5's encoder
blocks, then its decoder blocks), A attentions (BERT's layers; T5's encoder, decoder and cross-attentions, in this
order), all without those that a part skips, H hidden size, W attention size (H except for some T5), F intermediate
size, d bottleneck, n hypercomplex division, r rank, K LoRA targets, P prefix or prompt length, N norms, C outputs.
"""

from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Annotated

from peltier_backbone.checkpoint.config import BackboneConfig
from pydantic import Field

from peltier_adapters.spec.bottleneck import BottleneckActivation, BottleneckSpec, Site
from peltier_adapters.spec.head import HeadActivation, HeadSpec, PoolingKind
from peltier_adapters.spec.lora import ALL_LINEAR, FEED_FORWARD, LoraMaps, LoraSpec, LoraStack, LoraTarget, VeraSpec
from peltier_adapters.spec.maps import DenseMap, FoldedLphmMap, LphmMap, PhmMap, ServedMapSpec, Shapes
from peltier_adapters.spec.prefix import MAX_PREFIX, CentralGateSpec, PrefixSpec, PromptSpec
from peltier_adapters.spec.replaced import BiasSite, BiasSpec, NormSpec
from peltier_adapters.spec.scale import ScaleSite, ScaleSpec

__all__ = [
    "ALL_LINEAR",
    "FEED_FORWARD",
    "MAX_PREFIX",
    "BiasSite",
    "BiasSpec",
    "BottleneckActivation",
    "BottleneckSpec",
    "CentralGateSpec",
    "HeadActivation",
    "HeadSpec",
    "LoraMaps",
    "LoraSpec",
    "LoraStack",
    "LoraTarget",
    "NormSpec",
    "PartSpec",
    "Parts",
    "PoolingKind",
    "PrefixSpec",
    "PromptSpec",
    "ScaleSite",
    "ScaleSpec",
    "Site",
    "VeraSpec",
    "count_by_block",
    "count_parameters",
    "part_conflicts",
    "part_problems",
    "pooler_users",
    "position_offset",
    "prompt_length",
    "served_parts",
    "tensor_shapes",
]

PartSpec = Annotated[
    BottleneckSpec
    | LoraSpec
    | VeraSpec
    | PrefixSpec
    | CentralGateSpec
    | PromptSpec
    | BiasSpec
    | NormSpec
    | ScaleSpec
    | HeadSpec,
    Field(discriminator="kind"),
]
Parts = tuple[PartSpec, ...]


def part_conflicts(parts: Parts) -> list[str]:
    """Why these parts cannot be combined; empty if they can."""
    kinds = [part.kind for part in parts]
    if "vera" in kinds and "lora" in kinds:
        return ["vera: it is served as a LoRA, so the adapter cannot have a lora too"]
    if "central_gate" not in kinds:
        return []
    scaled = [part for part in parts if isinstance(part, LoraSpec | PrefixSpec)]
    if len({part.kind for part in scaled}) < 2 or any(part.gated for part in scaled):
        return ["central_gate: it needs a lora and a prefix without gates of their own"]
    skips = {part.skip for part in parts if isinstance(part, LoraSpec | PrefixSpec | CentralGateSpec)}
    if len(skips) > 1:
        return [
            f"central_gate: it, the lora and the prefix skip {sorted(skips)} blocks; they must skip the same number"
        ]
    fed = [target for part in scaled if isinstance(part, LoraSpec) for target in part.targets if target in FEED_FORWARD]
    if fed:
        return [f"central_gate: it divides between the parts of an attention; lora has the target {fed[0]!r}"]
    return []


def part_problems(parts: Parts, config: BackboneConfig) -> list[str]:
    """Why these parts cannot be combined, or do not fit a backbone of this shape; empty if they can and do."""
    problems = [problem for part in parts for problem in part.problems(config)]
    return [*part_conflicts(parts), *problems, *_narrow_output(parts, config)]


def _narrow_output(parts: Parts, config: BackboneConfig) -> list[str]:
    """The central gate reads inputs of its attention, which are H wide."""
    targets = {target for part in parts if isinstance(part, LoraSpec) for target in part.targets}
    central = any(isinstance(part, CentralGateSpec) for part in parts)
    if not central or "output" not in targets or config.attention_size == config.hidden_size:
        return []
    sizes = f"{config.attention_size} and {config.hidden_size}"
    return [f"central_gate: lora target 'output' needs an attention as wide as the hidden size; here they are {sizes}"]


def tensor_shapes(parts: Parts, config: BackboneConfig) -> Shapes:
    """The exact tensors of an adapter, named `part.tensor`, with their shapes."""
    return {f"{part.kind}.{name}": shape for part in parts for name, shape in part.shapes(config).items()}


def pooler_users(parts: Parts) -> list[str]:
    """The kinds of the parts that need a backbone with a pooler."""
    return [
        part.kind
        for part in parts
        if (isinstance(part, HeadSpec) and part.pooling == "pooler")
        or (isinstance(part, BiasSpec) and "pooler" in part.sites)
    ]


def prompt_length(parts: Parts) -> int:
    """The number of soft tokens before a row's own tokens."""
    return sum(part.length for part in parts if isinstance(part, PromptSpec))


def position_offset(parts: Parts) -> int:
    """The number of an encoder's positions that a row's prefix occupies."""
    return sum(part.length for part in parts if isinstance(part, PrefixSpec) and part.shifts_positions)


def count_by_block(part: PartSpec, config: BackboneConfig) -> tuple[int, ...]:
    """Elements of a part in each block of a stack, in order; empty for a part without blocks. An encoder-decoder has
    two stacks, whose blocks of the same place are counted together. Norms before the first block belong to it. What all
    blocks share is in none.
    """
    if isinstance(part, PromptSpec | HeadSpec):
        return ()
    depth = max(map(config.place_block, range(config.num_blocks))) + 1
    # What a part has in the blocks from each place on.
    following = [
        count_parameters((part.model_copy(update={"skip": skip}),), config, head=True)
        for skip in range(part.skip, depth + 1)
    ]
    return (0,) * part.skip + tuple(one - after for one, after in pairwise(following))


def count_parameters(parts: Parts, config: BackboneConfig, *, head: bool = False) -> int:
    """Elements of the adapter; without the task head, as in the papers, unless `head`."""
    counted = tuple(part for part in parts if head or part.kind != "head")
    return sum(prod(shape) for shape in tensor_shapes(counted, config).values())


@lru_cache(maxsize=1024)
def served_parts(parts: Parts) -> Parts:
    """The parts in the form in which a server holds them; parts without maps to build are the same object.

    Maps are built once, when the adapter is loaded: a PHM map becomes a dense map, the rule of an LPHM map is folded
    into its smaller factor, and VeRA becomes a LoRA. So batches build nothing, and the tensors on the device have
    exactly the shapes of these parts."""
    served = tuple(_served(part) for part in parts)
    return parts if served == parts else served


def _served(part: PartSpec) -> PartSpec:
    if isinstance(part, VeraSpec):
        return part.served
    if not isinstance(part, BottleneckSpec):
        return part
    built: ServedMapSpec = part.map
    match part.map:
        case PhmMap():
            built = DenseMap()
        case LphmMap(n=n, rank=rank):
            built = FoldedLphmMap(n=n, rank=rank)
    return part if built is part.map else part.model_copy(update={"map": built})
