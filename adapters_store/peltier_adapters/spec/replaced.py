"""The specs of parts that replace the backbone's own biases and norms. Imports no torch."""

from typing import Literal, Self

from peltier_backbone.checkpoint.config import BackboneConfig
from pydantic import Field, model_validator

from peltier_adapters.spec.maps import Shapes, TensorShape
from peltier_adapters.spec.part_spec import (
    BasePartSpec,
    Distinct,
    MapSite,
    Skip,
    map_width,
    skip_problems,
    unskipped_maps,
)

BiasSite = Literal[MapSite, "pooler", "lm_head"]


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
            case _:
                return unskipped_maps(site, self.skip, config)

    def problems(self, config: BackboneConfig) -> list[str]:
        problems = skip_problems(self.kind, self.skip, config)
        absent = "pooler" if config.generates else "lm_head"
        return [*problems, f"bias: a {config.family} backbone has no {absent!r}"] if absent in self.sites else problems

    def shapes(self, config: BackboneConfig) -> Shapes:
        return {site: self._shape(site, config) for site in self.sites}

    def _shape(self, site: BiasSite, config: BackboneConfig) -> TensorShape:
        match site:
            case "pooler":
                return (config.hidden_size,)
            case "lm_head":
                return (config.vocab_size,)
            case _:
                return len(self.numbers(site, config)), map_width(site, config)


class NormSpec(BasePartSpec):
    """Norm weights and/or biases that replace the backbone's, in the backbone's order of norms (docs/methods.md#norms).
    With `skip` the norms before and in the first blocks of each stack are the backbone's own.

    The norms of T5 and ModernBERT have no bias, so one is added, except to T5's two final norms
    (docs/methods/bitfit.md). ELECTRA's norm of the embeddings keeps its weights if it is not as wide as the hidden
    states."""

    kind: Literal["norm"] = "norm"
    weight: bool = True
    bias: bool = True
    skip: Skip = 0

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.weight or self.bias):
            raise ValueError("a norm part replaces the weight, the bias or both")
        return self

    def norms(self, config: BackboneConfig) -> list[int]:
        """The norms that it replaces, in order."""
        first, narrow = self.skip or -1, config.narrow_norms
        return [index for index in range(config.num_norms) if config.place_norm(index) >= first and index not in narrow]

    def biased(self, config: BackboneConfig) -> list[int]:
        """The norms that may have a bias."""
        final = (2 * config.num_layers, config.num_norms - 1) if config.generates else ()
        return [index for index in self.norms(config) if index not in final]

    def problems(self, config: BackboneConfig) -> list[str]:
        return skip_problems(self.kind, self.skip, config)

    def shapes(self, config: BackboneConfig) -> Shapes:
        weight: Shapes = {"weight": (len(self.norms(config)), config.hidden_size)} if self.weight else {}
        return weight | ({"bias": (len(self.biased(config)), config.hidden_size)} if self.bias else {})
