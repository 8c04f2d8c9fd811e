"""What every backbone's configuration offers; imports no torch."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

Family = Literal["bert", "roberta", "t5"]


@dataclass(frozen=True)
class BackboneConfig(ABC):
    """The shape of a backbone. Sizes are counts of elements, never bytes.

    Blocks, attentions and norms are numbered through the whole model, so that a part of an adapter has one tensor for
    all of them: an encoder-decoder counts its encoder first.
    """

    generates: ClassVar[bool] = False  # whether the model has a decoder that writes text
    family: Family
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    pad_token_id: int
    norm_eps: float

    @property
    @abstractmethod
    def head_size(self) -> int:
        """Width of one attention head."""

    @property
    @abstractmethod
    def num_blocks(self) -> int:
        """Blocks, each with one self-attention and one feed-forward."""

    @property
    @abstractmethod
    def num_attentions(self) -> int:
        """Attentions, cross-attentions included."""

    @property
    @abstractmethod
    def num_norms(self) -> int:
        """Norms in `Adaptation.norm`'s order."""

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """Elements of the frozen model."""

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """The longest row that is served."""

    @property
    def attention_size(self) -> int:
        """Width of one query, key or value: all heads together."""
        return self.num_heads * self.head_size

    @property
    def expansion_size(self) -> int:
        """Width of the projection into the feed-forward, `intermediate`."""
        return self.intermediate_size

    @property
    def first_position(self) -> int:
        """The position of a row's first token."""
        return 0

    @property
    def typed(self) -> bool:
        """Whether token types are embedded."""
        return False
