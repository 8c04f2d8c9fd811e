"""The spec of a task's head on an encoder. Imports no torch."""

import operator
from typing import Annotated, Literal, Self

from peltier_backbone.checkpoint.config import BackboneConfig
from pydantic import Field, model_validator

from peltier_adapters.spec.maps import Shapes, Size, is_none
from peltier_adapters.spec.part_spec import BasePartSpec

PoolingKind = Literal["pooler", "first", "mean", "max", "tokens"]
HeadActivation = Literal["tanh", "relu", "gelu"]
# An answer has an entry for each term, and golden examples have two numbers. SPLADE's documents have about 200 terms.
# A golden example shows that the terms are the right ones by terms that are not the last of them.
MIN_TERMS, MAX_TERMS = 8, 1024
DEFAULT_TERMS = 256


class HeadSpec(BasePartSpec):
    """The output layer of a task on an encoder, over one vector per row or over every token. T5 answers in text and has
    no head.

    `pooling` picks the vector: `pooler` the backbone's tanh pooler on the first token, `first` the first token, `mean`
    the mean over tokens, `max` the largest value over tokens in each place; with `tokens` the head reads each token.
    `hidden` adds a dense layer before it, as in RoBERTa's head, with this `activation`: RoBERTa's tanh, DistilBERT's
    relu or ELECTRA's gelu. `normed` adds a layer norm without bias after it, as in the heads of ModernBERT and of
    masked language models, which have gelu. Without `projection` the vector itself is the output, and the head has no
    tensors.

    With `terms` the head is SPLADE's (Formal et al. 2021, section 3): the logits of a token for the vocabulary are the
    products of its outputs with the backbone's token embeddings, plus a bias; those of a row are the largest over its
    tokens. The output is the number and the logit of the `terms` vocabulary entries with the largest logits,
    [terms, 2].
    """

    kind: Literal["head"] = "head"
    pooling: PoolingKind = "pooler"
    hidden: bool = False
    # The files of most heads do not mention these, so older releases read them too.
    activation: Annotated[HeadActivation, Field(exclude_if="tanh".__eq__)] = "tanh"
    normed: Annotated[bool, Field(exclude_if=operator.not_)] = False
    projection: Annotated[bool, Field(exclude_if=bool)] = True
    outputs: Size
    terms: Annotated[int | None, Field(ge=MIN_TERMS, le=MAX_TERMS, exclude_if=is_none)] = None

    @model_validator(mode="after")
    def _hidden_is_projected(self) -> Self:
        if self.hidden and not self.projection:
            raise ValueError("a head without a projection has no hidden layer")
        if self.normed and not (self.hidden and self.activation == "gelu"):
            raise ValueError("a head with a norm has a hidden layer with the activation gelu")
        if self.terms is not None and not (self.pooling == "tokens" and self.projection):
            raise ValueError("a head with terms reads every token, and has a projection")
        if self.terms is not None and self.hidden != self.normed:
            raise ValueError("a head with terms has no hidden layer, or one with a norm")
        return self

    @property
    def num_values(self) -> int:
        """The values of an output, for one row, or for one token of a task that reads tokens."""
        return self.outputs if self.terms is None else 2 * self.terms

    def problems(self, config: BackboneConfig) -> list[str]:
        if config.generates:
            return ["head: T5 answers in text and takes no head"]
        if not self.projection and self.outputs != config.hidden_size:
            sizes = f"{self.outputs} outputs, the backbone {config.hidden_size} values"
            return [f"head: without a projection its outputs are the pooled values; it has {sizes}"]
        return [] if self.terms is None else self._term_problems(self.terms, config)

    def _term_problems(self, terms: int, config: BackboneConfig) -> list[str]:
        reasons = []
        if self.outputs != config.token_size:
            sizes = f"{self.outputs} outputs, the backbone's token embeddings {config.token_size} values"
            reasons.append(f"head: a head with terms has outputs as wide as token embeddings; it has {sizes}")
        if terms > config.vocab_size:
            reasons.append(f"head: terms is {terms}; the backbone's vocabulary has {config.vocab_size} entries")
        return reasons

    def shapes(self, config: BackboneConfig) -> Shapes:
        if not self.projection:
            return {}
        hidden = config.hidden_size
        dense: Shapes = {"dense.weight": (hidden, hidden), "dense.bias": (hidden,)} if self.hidden else {}
        norm: Shapes = {"norm.weight": (hidden,)} if self.normed else {}
        own: Shapes = {"weight": (hidden, self.outputs), "bias": (self.outputs,)}
        vocabulary: Shapes = {} if self.terms is None else {"vocabulary.bias": (config.vocab_size,)}
        return dense | norm | own | vocabulary
