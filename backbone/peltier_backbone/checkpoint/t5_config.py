"""The configuration of T5, v1.0 and v1.1, mT5 and umT5; imports no torch."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

from peltier_backbone.checkpoint.fields import Fields
from peltier_backbone.checkpoint.shape import BackboneConfig, TextFamily

Activation = Literal["relu", "gelu", "gelu_new", "silu"]

# The files of mT5, umT5, ByT5 and T5 v1.1 do not say a number. mT5 and ByT5 were trained on inputs of 1,024 tokens (Xue
# et al. 2021 and 2022).
DEFAULT_POSITIONS = 1024
# The published embeddings end in 28 rows that no token id of the published tokenizer reaches
# (docs/methods.md#vocabulary).
_PADDED_VOCABULARY, _VOCABULARY = 32128, 32100
# What transformers reads in place of `d_model`, `num_layers`, `num_heads` and `d_kv`.
_OTHER_KEYS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim")


@dataclass(frozen=True)
class T5Config(BackboneConfig):
    """The shape of an encoder-decoder with relative positions; `num_layers` is the number of encoder layers.

    `tied`: the output layer is the embedding. `scaled`: hidden states are multiplied by hidden_size ** -0.5 before the
    output layer.

    `vocab_size` is the number of rows that token ids can reach, of the `num_rows` of the checkpoint's embedding.
    """

    generates: ClassVar[bool] = True
    pre_norm: ClassVar[bool] = True
    biased: ClassVar[bool] = False
    family: TextFamily
    num_decoder_layers: int
    kv_size: int
    num_buckets: int
    max_distance: int
    gated: bool
    activation: Activation
    tied: bool
    scaled: bool
    start_token_id: int
    eos_token_id: int
    num_positions: int = DEFAULT_POSITIONS
    num_rows: int = 0

    def for_tokens(self, num_entries: int) -> "T5Config":
        """The configuration for a tokenizer of `num_entries`, which may have tokens among the last rows."""
        return replace(self, vocab_size=num_entries) if self.vocab_size < num_entries <= self.num_rows else self

    @property
    def head_size(self) -> int:
        """Width of one attention head; all heads together may have another width than the hidden states."""
        return self.kv_size

    @property
    def num_blocks(self) -> int:
        """The number of blocks of the encoder and the decoder."""
        return self.num_layers + self.num_decoder_layers

    @property
    def num_attentions(self) -> int:
        """The number of attentions: encoder self-attentions, decoder self-attentions, then cross-attentions."""
        return self.num_layers + 2 * self.num_decoder_layers

    @property
    def num_norms(self) -> int:
        """The number of norms: two for each encoder block, three for each decoder block, and one after each stack."""
        return 2 * self.num_layers + 1 + 3 * self.num_decoder_layers + 1

    def place_norm(self, index: int) -> int:
        encoder = 2 * self.num_layers + 1
        return index // 2 if index < encoder else (index - encoder) // 3

    @property
    def expansion_size(self) -> int:
        """Width of `intermediate`. A gated one has two halves: the activated columns, then their factors."""
        return 2 * self.intermediate_size if self.gated else self.intermediate_size

    @property
    def block_biases(self) -> bool:
        """Whether each block has relative biases of its own (umT5); otherwise the blocks of a stack share them."""
        return self.family == "umt5"

    @property
    def num_parameters(self) -> int:
        """The number of elements without the vocabulary's padding; a tied output layer counts once."""
        biases = (self.num_blocks if self.block_biases else 2) * self.num_buckets * self.num_heads
        tables = self.vocab_size * self.hidden_size * (1 if self.tied else 2) + biases
        attentions = self.num_attentions * 4 * self.hidden_size * self.attention_size
        feed_forwards = self.num_blocks * self.hidden_size * (self.expansion_size + self.intermediate_size)
        return tables + attentions + feed_forwards + self.num_norms * self.hidden_size

    @property
    def max_tokens(self) -> int:
        """The number of tokens that the file says, or `DEFAULT_POSITIONS`; relative positions set no limit."""
        return self.num_positions


def crop_vocabulary(rows: int, tokens: Iterable[int]) -> int:
    """The number of rows that the published tokenizer and the `tokens` of the configuration can reach in an embedding
    of `rows` rows."""
    return max(_VOCABULARY, *(token + 1 for token in tokens)) if rows == _PADDED_VOCABULARY else rows


def parse_t5(fields: Fields, family: TextFamily) -> T5Config:
    """Build the configuration; raises a `BackboneError` that names a missing or unsupported field."""
    fields.only("is_encoder_decoder", True)
    gated, activation = _feed_forward(fields)
    tied, scaled = _output_layer(fields, family)
    layers = fields.size("num_layers")
    rows = fields.size("vocab_size")
    tokens = _special_tokens(fields, rows)
    config = T5Config(
        family=family,
        vocab_size=crop_vocabulary(rows, tokens.values()),
        hidden_size=fields.size("d_model"),
        num_layers=layers,
        num_heads=fields.size("num_heads"),
        intermediate_size=fields.size("d_ff"),
        pad_token_id=tokens["pad_token_id"],
        norm_eps=fields.epsilon("layer_norm_epsilon", 1e-6),
        num_decoder_layers=fields.size("num_decoder_layers", layers),
        kv_size=fields.size("d_kv"),
        num_buckets=fields.size("relative_attention_num_buckets", 32),
        max_distance=fields.size("relative_attention_max_distance", 128),
        gated=gated,
        activation=activation,
        tied=tied,
        scaled=scaled,
        start_token_id=tokens["decoder_start_token_id"],
        eos_token_id=tokens["eos_token_id"],
        num_positions=fields.size("n_positions", DEFAULT_POSITIONS),
        num_rows=rows,
        dropout=fields.rate("dropout_rate", 0.1),
    )
    _check(config, fields)
    return config


def _special_tokens(fields: Fields, rows: int) -> dict[str, int]:
    """The numbers of the tokens by their keys."""
    padding = fields.token("pad_token_id", 0)
    tokens = {
        "pad_token_id": padding,
        "eos_token_id": fields.token("eos_token_id", 1),
        "decoder_start_token_id": fields.token("decoder_start_token_id", padding),
    }
    for key, token in tokens.items():
        if token >= rows:
            raise fields.error(f"{key} is {token}; the vocabulary has {rows} entries")
    return tokens


def _feed_forward(fields: Fields) -> tuple[bool, Activation]:
    """Whether the feed-forward is gated, and its activation: `gated-gelu` means the tanh form, as in transformers."""
    found = str(fields.raw.get("feed_forward_proj") or "relu")
    name = "gelu_new" if found == "gated-gelu" else found.removeprefix("gated-")
    if name not in ("relu", "gelu", "gelu_new", "silu"):
        raise fields.error(
            f"feed_forward_proj is {found!r}; it is relu, gelu, gelu_new or silu, with 'gated-' in front or not"
        )
    gated = found.startswith("gated-")
    fields.only("is_gated_act", gated)
    fields.only("dense_act_fn", name)
    return gated, cast(Activation, name)


def _output_layer(fields: Fields, family: TextFamily) -> tuple[bool, bool]:
    """Whether the output layer is tied and its input scaled (docs/backbones.md#output-layers-of-text-models).
    transformers 5 saves every configuration as tied, and T5's own value as `scale_decoder_outputs`."""
    ties = fields.raw.get("tie_word_embeddings") is not False
    match family:
        case "t5":
            tied = ties and fields.raw.get("scale_decoder_outputs") is not False
            return tied, tied
        case "mt5":
            return False, False
        case "umt5":
            return False, ties


def _check(config: T5Config, fields: Fields) -> None:
    if config.num_buckets < 4 or config.max_distance <= config.num_buckets // 2:
        raise fields.error(
            f"{config.num_buckets} relative_attention_num_buckets up to relative_attention_max_distance "
            f"{config.max_distance} have no logarithmic half"
        )
    sizes = (config.hidden_size, config.num_layers, config.num_heads, config.kv_size)
    for key, size in zip(_OTHER_KEYS, sizes, strict=True):
        fields.only(key, size)
