"""The spec of a task's head on an encoder. Imports no torch."""

import operator
from typing import Annotated, Literal, Self

from peltier_backbone.checkpoint.config import BackboneConfig
from pydantic import Field, model_validator

from peltier_adapters.spec.maps import Shapes, Size
from peltier_adapters.spec.part_spec import BasePartSpec

PoolingKind = Literal["pooler", "first", "mean", "max", "tokens"]
HeadActivation = Literal["tanh", "relu", "gelu"]


class HeadSpec(BasePartSpec):
    """The output layer of a task on an encoder, over one vector per row or over every token. T5 answers in text and has
    no head.

    `pooling` picks the vector: `pooler` the backbone's tanh pooler on the first token, `first` the first token, `mean`
    the mean over tokens, `max` the largest value over tokens in each place; with `tokens` the head reads each token.
    `hidden` adds a dense layer before it, as in RoBERTa's head, with this `activation`: RoBERTa's tanh, DistilBERT's
    relu or ELECTRA's gelu. `normed` adds a layer norm without bias after it, as in ModernBERT's head, which has
    gelu. Without `projection` the vector itself is the output, and the head has no tensors.
    """

    kind: Literal["head"] = "head"
    pooling: PoolingKind = "pooler"
    hidden: bool = False
    # The files of most heads do not mention these, so older releases read them too.
    activation: Annotated[HeadActivation, Field(exclude_if="tanh".__eq__)] = "tanh"
    normed: Annotated[bool, Field(exclude_if=operator.not_)] = False
    projection: Annotated[bool, Field(exclude_if=bool)] = True
    outputs: Size

    @model_validator(mode="after")
    def _hidden_is_projected(self) -> Self:
        if self.hidden and not self.projection:
            raise ValueError("a head without a projection has no hidden layer")
        if self.normed and not (self.hidden and self.activation == "gelu"):
            raise ValueError("a head with a norm has a hidden layer with the activation gelu")
        return self

    def problems(self, config: BackboneConfig) -> list[str]:
        if config.generates:
            return ["head: T5 answers in text and takes no head"]
        if not self.projection and self.outputs != config.hidden_size:
            sizes = f"{self.outputs} outputs, the backbone {config.hidden_size} values"
            return [f"head: without a projection its outputs are the pooled values; it has {sizes}"]
        return []

    def shapes(self, config: BackboneConfig) -> Shapes:
        if not self.projection:
            return {}
        hidden = config.hidden_size
        dense: Shapes = {"dense.weight": (hidden, hidden), "dense.bias": (hidden,)} if self.hidden else {}
        norm: Shapes = {"norm.weight": (hidden,)} if self.normed else {}
        return dense | norm | {"weight": (hidden, self.outputs), "bias": (self.outputs,)}
