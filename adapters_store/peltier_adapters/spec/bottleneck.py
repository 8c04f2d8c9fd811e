"""The spec of a bottleneck adapter. Imports no torch."""

from typing import Annotated, Literal

from peltier_backbone.checkpoint.config import BackboneConfig
from pydantic import Field

from peltier_adapters.spec.maps import FoldedLphmMap, LphmMap, MapSpec, ServedMapSpec, Shapes, Size
from peltier_adapters.spec.part_spec import BasePartSpec, Distinct, gate_shapes, skip_problems, unskipped_blocks

Site = Literal["attention", "ffn"]
BottleneckActivation = Literal["relu", "gelu", "gelu_new", "swish"]


class BottleneckSpec(BasePartSpec):
    """y + up(act(down(x))) at the output y of a sub-layer, before the residual sum.

    `input` is what the adapter reads: `output` the sub-layer's raw output y, `normed` the norm of y + residual, `sum`
    y + residual itself (on T5 and ModernBERT, where no norm follows the sum; docs/methods/pfeiffer.md).
    `gated` scales the adapter's own term with UniPELT's gate on that input. The first `skip` blocks of each stack have
    none (AdapterDrop). On T5 the site `attention` is self-attention; cross-attention has no adapter
    (docs/methods.md#sites).
    """

    kind: Literal["bottleneck"] = "bottleneck"
    sites: Distinct[Site] = Field(min_length=1, max_length=2)
    size: Size
    activation: BottleneckActivation
    input: Literal["output", "normed", "sum"] = "output"
    map: MapSpec
    gated: bool = False
    skip: Annotated[int, Field(ge=0)] = 0

    def blocks(self, config: BackboneConfig) -> list[int]:
        """The blocks that have an adapter, in order."""
        return unskipped_blocks(self.skip, config)

    def problems(self, config: BackboneConfig) -> list[str]:
        n = getattr(self.map, "n", 1)
        problems = [
            f"bottleneck: n = {n} must divide the {what} {value}"
            for what, value in (("hidden size", config.hidden_size), ("bottleneck size", self.size))
            if value % n
        ]
        # Otherwise the factored form is larger than the dense one, and serving a small file could take gigabytes.
        if isinstance(self.map, LphmMap) and n * n * self.map.rank > config.hidden_size:
            problems.append(
                f"bottleneck: n * n * rank = {n * n * self.map.rank} must not exceed the hidden size "
                f"{config.hidden_size}"
            )
        problems += skip_problems(self.kind, self.skip, config)
        if self.input == "normed" and config.pre_norm:
            problems.append(
                f"bottleneck: input 'normed' reads a norm after the residual sum, which a {config.family} backbone "
                "does not have"
            )
        return problems

    def shapes(self, config: BackboneConfig) -> Shapes:
        leading = (len(self.sites), len(self.blocks(config)))
        hidden = config.hidden_size
        shapes: Shapes = {}
        for side, before, after in (("down", hidden, self.size), ("up", self.size, hidden)):
            shapes |= {f"{side}.{name}": leading + shape for name, shape in self.map.shapes(before, after).items()}
            if _has_bias(self.map, before, after):
                shapes[f"{side}.bias"] = (*leading, after)
        if isinstance(self.map, LphmMap):
            shapes["rule"] = (self.map.n,) * 3
        return shapes | gate_shapes(self.gated, *leading, hidden=hidden)


def _has_bias(spec: ServedMapSpec, before: int, after: int) -> bool:
    return not isinstance(spec, FoldedLphmMap) or spec.contracts(before, after)
