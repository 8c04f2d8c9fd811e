"""The interface of every backbone's configuration; imports no torch."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from peltier_backbone.checkpoint.sentence_files import SentencePooling

RotaryBertFamily = Literal["nomic_bert", "gte", "jina_embeddings_v3"]
PostNormFamily = Literal[
    "bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "mpnet", "deberta-v2", RotaryBertFamily
]  # fmt: skip
TextFamily = Literal["t5", "mt5", "umt5"]
Family = PostNormFamily | TextFamily | Literal["modernbert", "eurobert"]
ROTARY_BERT_FAMILIES: tuple[RotaryBertFamily, ...] = get_args(RotaryBertFamily)
POST_NORM_FAMILIES: tuple[PostNormFamily, ...] = get_args(PostNormFamily)
TEXT_FAMILIES: tuple[TextFamily, ...] = get_args(TextFamily)


@dataclass(frozen=True)
class BackboneConfig(ABC):
    """The shape of a backbone. Sizes are counts of elements, never bytes.

    Blocks, attentions and norms are numbered through the whole model, in an encoder-decoder from the encoder on. So a
    part of an adapter has one tensor for all of them. `sentence_pooling` is the pooling that an encoder's
    sentence-transformers checkpoint was trained with, `unserved_module` the first of its modules that no forward pass
    here computes, and `sentence_prompts` are its prompts by name, of which `default_prompt` is for inputs without one.
    Training uses `dropout`, the checkpoint's rate for hidden states.
    """

    generates: ClassVar[bool] = False  # whether the model has a decoder that writes text
    pre_norm: ClassVar[bool] = False  # whether norms come before sub-layers, and none after the sum with the residual
    biased: ClassVar[bool] = True  # whether maps and norms have biases
    family: Family
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    pad_token_id: int
    norm_eps: float
    sentence_pooling: SentencePooling | None = field(default=None, kw_only=True)
    unserved_module: str | None = field(default=None, kw_only=True)
    sentence_prompts: Mapping[str, str] = field(default_factory=dict, kw_only=True, hash=False)
    default_prompt: str | None = field(default=None, kw_only=True)
    dropout: float = field(default=0.0, kw_only=True)

    @property
    @abstractmethod
    def head_size(self) -> int:
        """Width of one attention head."""

    @property
    @abstractmethod
    def num_blocks(self) -> int:
        """The number of blocks, each with one self-attention and one feed-forward layer."""

    @property
    @abstractmethod
    def num_attentions(self) -> int:
        """The number of attentions, with cross-attentions."""

    @property
    @abstractmethod
    def num_norms(self) -> int:
        """The number of norms, in the order of `Adaptation.norm`."""

    @abstractmethod
    def place_norm(self, index: int) -> int:
        """The place of norm `index` in its stack: that of its block, -1 before the first block, and the number of
        blocks after the last."""

    @property
    def narrow_norms(self) -> tuple[int, ...]:
        """The norms that are not as wide as the hidden states; adapters leave them alone."""
        return ()

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """The number of elements of the frozen model's weights."""

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """The number of tokens of the longest row that the model can process."""

    @property
    def attention_size(self) -> int:
        """Width of one query, key or value: all heads together."""
        return self.num_heads * self.head_size

    @property
    def token_size(self) -> int:
        """Width of token embeddings."""
        return self.hidden_size

    def place_block(self, block: int) -> int:
        """The place of a block in its stack, from 0 on."""
        return block if block < self.num_layers else block - self.num_layers

    def place_attention(self, attention: int) -> int:
        """The place of an attention's block in its stack. Cross-attentions follow all others."""
        return self.place_block(attention) if attention < self.num_blocks else attention - self.num_blocks

    @property
    def expansion_size(self) -> int:
        """Width of the output of the feed-forward's first projection, `intermediate`."""
        return self.intermediate_size

    @property
    def first_position(self) -> int:
        """The position of a row's first token."""
        return 0

    @property
    def uncounted_token(self) -> int | None:
        """The token that takes no position: its own is always the one before `first_position`. None if all count."""
        return None

    @property
    def typed(self) -> bool:
        """Whether token types are embedded."""
        return False

    @property
    def pooled(self) -> bool:
        """Whether models of this family have a pooler. Checkpoints of others may have one too, which is not trained."""
        return False


@dataclass(frozen=True)
class EncoderConfig(BackboneConfig):
    """The shape of an encoder. A layer, its block and its attention have the same number."""

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def num_blocks(self) -> int:
        return self.num_layers

    @property
    def num_attentions(self) -> int:
        return self.num_layers
