"""The configuration of BERT and its relatives; imports no torch."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from peltier_backbone.checkpoint.bert_family import BERT_FAMILIES, BertFamily, MapName
from peltier_backbone.checkpoint.fields import ENCODER_SIZES, Fields
from peltier_backbone.checkpoint.shape import EncoderConfig, PostNormFamily

# transformers reads BERT's keys of these in place of a family's own keys.
_ALIASED = ("hidden_size", "num_layers", "num_heads")
# The buckets of distances, and the distance from which on all share one. MPNet's code has no others.
NUM_BUCKETS, MAX_DISTANCE = 32, 128
# MPNet numbers positions from two on, whatever its padding index is.
_MPNET_FIELDS = {"relative_attention_num_buckets": NUM_BUCKETS, "pad_token_id": 1}


@dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """The shape of a post-norm encoder. A layer, its block and its attention have the same number. `embedding_size` is
    the width of embeddings and their norm; if it is not the hidden size, a map follows them."""

    family: PostNormFamily
    max_positions: int
    num_token_types: int
    embedding_size: int

    @property
    def num_norms(self) -> int:
        """The embedding norm and two norms for each layer."""
        return 2 * self.num_layers + 1

    def place_norm(self, index: int) -> int:
        return (index - 1) // 2

    @cached_property
    def kind(self) -> BertFamily:
        """How the family differs from BERT."""
        return BERT_FAMILIES[self.family]

    @property
    def expansion_size(self) -> int:
        """Width of `intermediate`: if it is gated, the activated columns, then their factors."""
        return self.intermediate_size * (2 if self.kind.gated else 1)

    @property
    def token_size(self) -> int:
        return self.embedding_size

    @property
    def factored(self) -> bool:
        """Whether a map follows the embeddings, which have another width than the hidden states."""
        return self.embedding_size != self.hidden_size

    @property
    def narrow_norms(self) -> tuple[int, ...]:
        return (0,) if self.factored else ()

    @property
    def num_parameters(self) -> int:
        """Elements of the encoder, with a pooler in the families that have one."""
        hidden, width = self.hidden_size, self.embedding_size
        positions = 0 if self.kind.rotary else self.max_positions
        embeddings = (self.vocab_size + positions + self.num_token_types + 2) * width
        projection = (width + 1) * hidden if self.factored else 0
        layer = 4 * hidden * hidden + hidden * (self.expansion_size + self.intermediate_size) + 4 * hidden
        sizes: dict[MapName, int] = {
            "query_key_value": 3 * hidden,
            "attention_output": hidden,
            "intermediate": self.expansion_size,
            "output": hidden,
        }
        layer += sum(size for name, size in sizes.items() if name not in self.kind.unbiased)
        pooler = hidden * (hidden + 1) if self.pooled else 0
        biases = NUM_BUCKETS * self.num_heads if self.relative else 0
        return embeddings + projection + biases + self.num_layers * layer + pooler

    @property
    def max_tokens(self) -> int:
        """The number of tokens of the longest row that has position embeddings."""
        return self.max_positions - self.first_position

    @cached_property
    def first_position(self) -> int:
        return self.pad_token_id + 1 if self.kind.after_pad else 0

    @cached_property
    def uncounted_token(self) -> int | None:
        return self.pad_token_id if self.kind.after_pad else None

    @cached_property
    def typed(self) -> bool:
        return self.kind.typed and self.num_token_types > 1

    @cached_property
    def relative(self) -> bool:
        """Whether attention has a bias by distance."""
        return self.kind.relative

    @property
    def pooled(self) -> bool:
        return self.kind.pooled


def read_sizes(fields: Fields, family: PostNormFamily) -> dict[str, Any]:
    """The sizes that all of these families have, by their names in the configuration."""
    kind = BERT_FAMILIES[family]
    values: dict[str, Any] = {name: fields.size(kind.key(key)) for name, key in ENCODER_SIZES.items()}
    for name in _ALIASED:
        fields.only(ENCODER_SIZES[name], values[name])
    if values["hidden_size"] % values["num_heads"]:
        raise fields.error(
            f"{kind.key('hidden_size')} {values['hidden_size']} is not divisible by its {values['num_heads']} heads"
        )
    return values


def parse_bert(fields: Fields, family: PostNormFamily) -> BertConfig:
    """Build the configuration; raises a `BackboneError` that names a missing or unsupported field."""
    kind = BERT_FAMILIES[family]
    for key, served in (("hidden_act", "gelu"), ("position_embedding_type", "absolute"), ("is_decoder", False)):
        fields.only(kind.key(key), served)
    for key, number in _MPNET_FIELDS.items() if kind.relative else ():
        fields.only(key, number)
    values = read_sizes(fields, family)
    config = BertConfig(
        family=family,
        pad_token_id=fields.token("pad_token_id", 1 if kind.after_pad else 0),
        norm_eps=fields.epsilon("layer_norm_eps", 1e-12),
        embedding_size=fields.size("embedding_size", 128) if kind.factored else values["hidden_size"],
        num_token_types=fields.size("type_vocab_size") if kind.embeds_types else 0,
        dropout=fields.rate(kind.key("hidden_dropout_prob"), 0.1),
        **values,
    )
    if config.max_tokens < 1:
        raise fields.error(f"max_position_embeddings {config.max_positions} leaves no position for a token")
    return config
