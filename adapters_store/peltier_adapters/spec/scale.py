"""The spec of learned scales. Imports no torch."""

from typing import Literal

from peltier_backbone.checkpoint.config import BackboneConfig
from pydantic import Field

from peltier_adapters.spec.maps import Shapes, TensorShape
from peltier_adapters.spec.part_spec import (
    BasePartSpec,
    Distinct,
    MapSite,
    Skip,
    map_width,
    skip_problems,
    unskipped_blocks,
    unskipped_maps,
)

ScaleSite = Literal[MapSite, "activated"]


class ScaleSpec(BasePartSpec):
    """y * factor at the named sites, one factor a column, but for those in the first `skip` blocks of each stack (IA3,
    docs/methods/ia3.md). A site is the output of a frozen map with its bias, or `activated`, the input of the second
    feed-forward map. Scales come before all else that acts at their site: before biases and LoRA."""

    kind: Literal["scale"] = "scale"
    sites: Distinct[ScaleSite] = Field(min_length=1, max_length=7)
    skip: Skip = 0

    def numbers(self, site: ScaleSite, config: BackboneConfig) -> list[int]:
        """The blocks or attentions with a scale at `site`, in order."""
        if site == "activated":
            return unskipped_blocks(self.skip, config)
        return unskipped_maps(site, self.skip, config)

    def problems(self, config: BackboneConfig) -> list[str]:
        return skip_problems(self.kind, self.skip, config)

    def shapes(self, config: BackboneConfig) -> Shapes:
        return {site: self._shape(site, config) for site in self.sites}

    def _shape(self, site: ScaleSite, config: BackboneConfig) -> TensorShape:
        width = config.intermediate_size if site == "activated" else map_width(site, config)
        return len(self.numbers(site, config)), width
