"""The spec of biases. Imports no torch."""

from typing import Literal

from peltier_backbone.checkpoint.config import BackboneConfig
from pydantic import Field

from peltier_adapters.spec.maps import Shape, Shapes
from peltier_adapters.spec.part_spec import (
    BasePartSpec,
    Distinct,
    Skip,
    skip_problems,
    unskipped_attentions,
    unskipped_blocks,
)

BiasSite = Literal["query", "key", "value", "attention_output", "intermediate", "output", "pooler", "lm_head"]


class BiasSpec(BasePartSpec):
    """Biases that replace the backbone's at the named sites, but for those in the first `skip` blocks of each stack. T5
    and ModernBERT have none, so they are added there (BitFit, docs/methods/bitfit.md)."""

    kind: Literal["bias"] = "bias"
    sites: Distinct[BiasSite] = Field(min_length=1, max_length=8)
    skip: Skip = 0

    def numbers(self, site: BiasSite, config: BackboneConfig) -> list[int]:
        """The blocks or attentions with a bias of their own at `site`, in order; the pooler and T5's output layer are
        number 0."""
        match site:
            case "pooler" | "lm_head":
                return [0]
            case "intermediate" | "output":
                return unskipped_blocks(self.skip, config)
            case "attention_output" | "query" | "key" | "value":
                return unskipped_attentions(self.skip, config)

    def problems(self, config: BackboneConfig) -> list[str]:
        problems = skip_problems(self.kind, self.skip, config)
        absent = "pooler" if config.generates else "lm_head"
        return [*problems, f"bias: a {config.family} backbone has no {absent!r}"] if absent in self.sites else problems

    def shapes(self, config: BackboneConfig) -> Shapes:
        return {site: self._shape(site, config) for site in self.sites}

    def _shape(self, site: BiasSite, config: BackboneConfig) -> Shape:
        num = len(self.numbers(site, config))
        match site:
            case "pooler":
                return (config.hidden_size,)
            case "lm_head":
                return (config.vocab_size,)
            case "intermediate":
                return (num, config.expansion_size)
            case "output" | "attention_output":
                return (num, config.hidden_size)
            case "query" | "key" | "value":
                return (num, config.attention_size)
