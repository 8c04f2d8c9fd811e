"""The shared pieces of the specs of parts: the base, the blocks that a part skips, the outputs of frozen maps, the
shapes of gates. Imports no torch."""

from typing import Annotated, Literal, TypeVar

from peltier_backbone.checkpoint.config import BackboneConfig
from pydantic import AfterValidator, Field, ValidationInfo

from peltier_adapters.spec.maps import Shapes, Spec

T = TypeVar("T")

# The outputs of the frozen maps of each block.
MapSite = Literal["query", "key", "value", "attention_output", "intermediate", "output"]


def gate_shapes(gated: bool, *leading: int, hidden: int) -> Shapes:
    """The tensors of UniPELT's gate, one gate for each place in `leading`."""
    return {"gate.weight": (*leading, hidden), "gate.bias": leading} if gated else {}


def _require_distinct(values: tuple[T, ...], info: ValidationInfo) -> tuple[T, ...]:
    if len(set(values)) < len(values):
        name = info.field_name or ""
        raise ValueError(f"{name} {values} name one {name.removesuffix('s')} twice")
    return values


Distinct = Annotated[tuple[T, ...], AfterValidator(_require_distinct)]


class BasePartSpec(Spec):
    """A part of an adapter."""

    def problems(self, config: BackboneConfig) -> list[str]:
        """Why the part does not fit a backbone of this shape; empty if it does."""
        return []


def _is_zero(value: int) -> bool:
    return value == 0


# The first blocks of each stack that a part leaves alone. Without any, the manifest does not mention them, so that
# releases before this setting read it too.
Skip = Annotated[int, Field(ge=0, exclude_if=_is_zero)]


def unskipped_blocks(skip: int, config: BackboneConfig) -> list[int]:
    """All blocks but the first `skip` of each stack."""
    return [block for block in range(config.num_blocks) if config.place_block(block) >= skip]


def unskipped_attentions(skip: int, config: BackboneConfig) -> list[int]:
    """All attentions but those of the first `skip` blocks of each stack."""
    return [attention for attention in range(config.num_attentions) if config.place_attention(attention) >= skip]


def unskipped_maps(site: MapSite, skip: int, config: BackboneConfig) -> list[int]:
    """The blocks or attentions of a map, without those of the first `skip` blocks of each stack."""
    own = unskipped_blocks if site in ("intermediate", "output") else unskipped_attentions
    return own(skip, config)


def map_width(site: MapSite, config: BackboneConfig) -> int:
    """The number of outputs of a map."""
    match site:
        case "intermediate":
            return config.expansion_size
        case "output" | "attention_output":
            return config.hidden_size
        case "query" | "key" | "value":
            return config.attention_size


def skip_problems(kind: str, skip: int, config: BackboneConfig) -> list[str]:
    """Why a part of this kind cannot skip so many blocks; empty if it can."""
    if unskipped_blocks(skip, config):
        return []
    return [f"{kind}: skip = {skip} leaves no block of {config.num_layers} with an adapter"]
