"""The specs of LoRA and of VeRA, which trains only the factors of a LoRA. Import no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from peltier_backbone.checkpoint.config import BackboneConfig
from pydantic import Field

from peltier_adapters.spec.maps import Shapes, Size
from peltier_adapters.spec.part_spec import (
    BasePartSpec,
    Distinct,
    Skip,
    gate_shapes,
    skip_problems,
    unskipped_attentions,
    unskipped_blocks,
)

T = TypeVar("T")
LoraTarget = Literal["query", "key", "value", "output", "intermediate", "ffn_output"]
FEED_FORWARD: tuple[LoraTarget, ...] = ("intermediate", "ffn_output")
ALL_LINEAR: tuple[LoraTarget, ...] = ("query", "key", "value", "output", *FEED_FORWARD)
_INTERMEDIATE: tuple[LoraTarget, ...] = ("intermediate",)
_LORA_TENSORS = ("down", "up", "gate.weight", "gate.bias", "inner", "outer")


@dataclass(frozen=True)
class LoraStack:
    """Maps of one shape [before, after]: K `maps` in each of N `numbers`, which are blocks or attentions. Their
    tensors are down [K, N, before, r] and up [K, N, r, after], whose names end with `suffix`."""

    maps: tuple[LoraTarget, ...]
    numbers: Sequence[int]
    before: int
    after: int
    suffix: str = ""

    @property
    def in_blocks(self) -> bool:
        """Whether the maps are those of the feed-forward layers, so that `numbers` are blocks."""
        return self.maps[0] in FEED_FORWARD

    def find(self, tensors: Mapping[str, T]) -> dict[str, T]:
        """The stack's own tensors, by their names without the suffix."""
        names = {name: name + self.suffix for name in _LORA_TENSORS}
        return {name: tensors[own] for name, own in names.items() if own in tensors}


class LoraMaps(BasePartSpec):
    """The linear maps to which products of rank `rank` are added, in every block but the first `skip` of each stack.

    The targets `query`, `key`, `value` and `output` are the projections of every attention, `intermediate` and
    `ffn_output` those of the feed-forward layers. A gated feed-forward layer has two maps `intermediate`: the columns
    that are activated, then their factors."""

    targets: Distinct[LoraTarget] = Field(min_length=1, max_length=len(ALL_LINEAR))
    rank: Size
    skip: Skip = 0

    def attentions(self, config: BackboneConfig) -> list[int]:
        """The attentions that it adapts, in order."""
        return unskipped_attentions(self.skip, config)

    def stacks(self, config: BackboneConfig) -> list[LoraStack]:
        """The targets by the shapes of their maps. Those of shape [H, W] are together."""
        hidden, attention, inner = config.hidden_size, config.attention_size, config.intermediate_size
        attentions, blocks = unskipped_attentions(self.skip, config), unskipped_blocks(self.skip, config)
        together = {"query", "key", "value", *(["output"] if attention == hidden else [])}
        halves = _INTERMEDIATE * (config.expansion_size // inner)
        apart = (
            LoraStack(("output",), attentions, attention, hidden, ".output"),
            LoraStack(halves, blocks, hidden, inner, ".intermediate"),
            LoraStack(("ffn_output",), blocks, inner, hidden, ".ffn_output"),
        )
        shared = tuple(target for target in self.targets if target in together)
        first = [LoraStack(shared, attentions, hidden, attention)] if shared else []
        return first + [one for one in apart if one.maps[0] in self.targets and one.maps[0] not in together]


class LoraSpec(LoraMaps):
    """y + scale * (x down) up; a gate replaces the scale alpha / rank (docs/methods/lora.md)."""

    kind: Literal["lora"] = "lora"
    alpha: float = Field(gt=0, allow_inf_nan=False)
    gated: bool = False

    def problems(self, config: BackboneConfig) -> list[str]:
        return skip_problems(self.kind, self.skip, config)

    def shapes(self, config: BackboneConfig) -> Shapes:
        shapes: Shapes = {}
        for stack in self.stacks(config):
            leading = len(stack.maps), len(stack.numbers)
            own: Shapes = {"down": (*leading, stack.before, self.rank), "up": (*leading, self.rank, stack.after)}
            own |= gate_shapes(self.gated, *leading, hidden=stack.before)
            shapes |= {name + stack.suffix: shape for name, shape in own.items()}
        return shapes


class VeraSpec(LoraMaps):
    """y + (x A * inner) B * outer with random A and B, which all adapters of one `seed` and `rank` share; without
    `outer`, the inner factors alone are the task's own (docs/methods/vera.md). A server holds it as the LoRA that it
    is."""

    kind: Literal["vera"] = "vera"
    seed: int = Field(ge=0, lt=2**32)
    outer: bool = True

    def problems(self, config: BackboneConfig) -> list[str]:
        return skip_problems(self.kind, self.skip, config)

    @property
    def served(self) -> LoraSpec:
        """The LoRA with the factors multiplied into its matrices."""
        return LoraSpec(targets=self.targets, rank=self.rank, skip=self.skip, alpha=float(self.rank))

    def shapes(self, config: BackboneConfig) -> Shapes:
        shapes: Shapes = {}
        for stack in self.stacks(config):
            leading = len(stack.maps), len(stack.numbers)
            shapes[f"inner{stack.suffix}"] = (*leading, self.rank)
            if self.outer:
                shapes[f"outer{stack.suffix}"] = (*leading, stack.after)
        return shapes
