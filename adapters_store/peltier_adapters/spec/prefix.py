"""The specs of prefixes, soft prompts, and of the gate between a prefix and LoRA. Imports no torch."""

from typing import Annotated, Literal

from peltier_backbone.checkpoint.config import BackboneConfig
from pydantic import Field

from peltier_adapters.spec.maps import Shapes
from peltier_adapters.spec.part_spec import BasePartSpec, Skip, gate_shapes, skip_problems, unskipped_attentions

MAX_PREFIX = 512


class PrefixSpec(BasePartSpec):
    """P extra keys and values in front of those of every attention, but for those in the first `skip` blocks of each
    stack; a gate scales both (UniPELT). On T5 the encoder, the decoder and cross-attention have prefixes of their own,
    without a position bias (docs/methods/prefix.md).

    With `shifts_positions` an encoder's text begins at position P, as if the prefix were tokens before it (PEFT)."""

    kind: Literal["prefix"] = "prefix"
    length: Annotated[int, Field(ge=1, le=MAX_PREFIX)]
    gated: bool = False
    shifts_positions: bool = False
    skip: Skip = 0

    def attentions(self, config: BackboneConfig) -> list[int]:
        """The attentions that have a prefix, in order."""
        return unskipped_attentions(self.skip, config)

    def problems(self, config: BackboneConfig) -> list[str]:
        problems = skip_problems(self.kind, self.skip, config)
        if self.shifts_positions and config.generates:
            problems.append("prefix: shifts_positions is for encoders; T5 has no positions to count from")
        return problems

    def shapes(self, config: BackboneConfig) -> Shapes:
        num = len(self.attentions(config))
        shape = (num, self.length, config.attention_size)
        return {"keys": shape, "values": shape} | gate_shapes(self.gated, num, hidden=config.hidden_size)


class CentralGateSpec(BasePartSpec):
    """One gate per attention that divides between LoRA and the prefix, which then have no gates and no scale of their
    own: softmax over the row means of relu(x w + b), the first output for LoRA, the second for the prefix (UniPELT's
    `add_central_gate`, docs/methods/unipelt.md). Each share is computed from the input x of its part. For
    a value in T5's cross-attention that is the encoder's output, so the shares need not sum to 1. It has the `skip` of
    the parts that it divides between."""

    kind: Literal["central_gate"] = "central_gate"
    skip: Skip = 0

    def problems(self, config: BackboneConfig) -> list[str]:
        return skip_problems(self.kind, self.skip, config)

    def shapes(self, config: BackboneConfig) -> Shapes:
        num = len(unskipped_attentions(self.skip, config))
        return {"weight": (num, config.hidden_size, 2), "bias": (num, 2)}


class PromptSpec(BasePartSpec):
    """P soft tokens in front of the encoder's input (prompt tuning, docs/methods/prompt.md)."""

    kind: Literal["prompt"] = "prompt"
    length: Annotated[int, Field(ge=1, le=MAX_PREFIX)]

    def problems(self, config: BackboneConfig) -> list[str]:
        return [] if config.generates else [f"prompt: a {config.family} backbone has no soft prompts; only T5 has"]

    def shapes(self, config: BackboneConfig) -> Shapes:
        return {"weight": (self.length, config.hidden_size)}
