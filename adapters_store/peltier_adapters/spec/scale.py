"""The spec of learned scales. Imports no torch."""

from typing import Literal

from peltier_backbone.checkpoint.config import BackboneConfig
from pydantic import Field

from peltier_adapters.spec.maps import Shapes, TensorShape
from peltier_adapters.spec.part_spec import (
    BasePartSpec,
    Distinct,
    Skip,
    skip_problems,
    unskipped_attentions,
    unskipped_blocks,
)

ScaleSite = Literal["query", "key", "value", "attention_output", "intermediate", "activated", "output"]
_IN_BLOCKS: tuple[ScaleSite, ...] = ("intermediate", "activated", "output")


class ScaleSpec(BasePartSpec):
    """y * factor at the named sites, one factor a column, but for those in the first `skip` blocks of each stack (IA3,
    docs/methods/ia3.md). A site is the output of a frozen map with its bias, or `activated`, the input of the second
    feed-forward map. Scales come before all else that acts at their site: before biases and LoRA."""

    kind: Literal["scale"] = "scale"
    sites: Distinct[ScaleSite] = Field(min_length=1, max_length=7)
    skip: Skip = 0

    def numbers(self, site: ScaleSite, config: BackboneConfig) -> list[int]:
        """The blocks or attentions with a scale at `site`, in order."""
        own = unskipped_blocks if site in _IN_BLOCKS else unskipped_attentions
        return own(self.skip, config)

    def problems(self, config: BackboneConfig) -> list[str]:
        return skip_problems(self.kind, self.skip, config)

    def shapes(self, config: BackboneConfig) -> Shapes:
        return {site: self._shape(site, config) for site in self.sites}

    def _shape(self, site: ScaleSite, config: BackboneConfig) -> TensorShape:
        num = len(self.numbers(site, config))
        match site:
            case "intermediate":
                return (num, config.expansion_size)
            case "activated":
                return (num, config.intermediate_size)
            case "output" | "attention_output":
                return (num, config.hidden_size)
            case "query" | "key" | "value":
                return (num, config.attention_size)
