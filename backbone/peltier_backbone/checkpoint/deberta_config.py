"""The configuration of DeBERTa-v2 and v3; imports no torch."""

from dataclasses import dataclass
from typing import Literal, get_args

from peltier_backbone.checkpoint.bert_config import BertConfig, read_sizes
from peltier_backbone.checkpoint.fields import Fields

ScoreKind = Literal["c2p", "p2c"]
ConvolutionActivation = Literal["tanh", "gelu"]
_KINDS: tuple[ScoreKind, ...] = get_args(ScoreKind)
_ACTIVATIONS: tuple[ConvolutionActivation, ...] = get_args(ConvolutionActivation)


@dataclass(frozen=True)
class DebertaConfig(BertConfig):
    """The shape of a DeBERTa (He et al. 2021). Scores of attention have the `kinds` of products with distances: a
    token's query and a distance's key (`c2p`), or a distance's query and a token's key (`p2c`). The table of distances
    has `num_buckets` rows for each direction, or a row for each distance below `reach` if that is 0; it has a norm if
    `norms_distances`. With `shares_maps` the maps of tokens give the queries and keys of distances too. Token
    embeddings have absolute positions if `places_tokens`. A map to the hidden size comes before their norm. A
    convolution of `convolution_size` neighbouring tokens follows the first layer unless that is 0."""

    num_buckets: int
    reach: int
    kinds: tuple[ScoreKind, ...]
    shares_maps: bool
    norms_distances: bool
    places_tokens: bool
    convolution_size: int = 0
    convolution_activation: ConvolutionActivation = "tanh"

    @property
    def span(self) -> int:
        """The number of rows of the table to each side."""
        return self.num_buckets or self.reach

    @property
    def score_scale(self) -> float:
        """What every product of a query and a key is multiplied by."""
        return float(((1 + len(self.kinds)) * self.head_size) ** -0.5)

    @property
    def narrow_norms(self) -> tuple[int, ...]:
        return ()

    @property
    def num_parameters(self) -> int:
        hidden, inner, width = self.hidden_size, self.intermediate_size, self.embedding_size
        rows = self.vocab_size + self.num_token_types + (self.max_positions if self.places_tokens else 0)
        embeddings = rows * width + 2 * hidden + (width * hidden if self.factored else 0)
        distances = 2 * self.span * hidden + (2 * hidden if self.norms_distances else 0)
        layer = 4 * hidden * (hidden + 1) + 2 * hidden * inner + inner + 5 * hidden
        own_maps = 0 if self.shares_maps else len(self.kinds) * hidden * (hidden + 1)
        convolution = self.convolution_size * hidden**2 + 3 * hidden if self.convolution_size else 0
        return embeddings + distances + convolution + self.num_layers * (layer + own_maps)


def parse_deberta(fields: Fields) -> DebertaConfig:
    """Build the configuration; raises a `BackboneError` that names a missing or unsupported field."""
    sizes = read_sizes(fields, "deberta-v2")
    head_size = sizes["hidden_size"] // sizes["num_heads"]
    served = {"hidden_act": "gelu", "conv_groups": 1, "attention_head_size": head_size, "is_decoder": False}
    for key, value in served.items():
        fields.only(key, value)
    if fields.raw.get("relative_attention") is not True:
        raise fields.error(f"relative_attention is {fields.raw.get('relative_attention')!r}; only True is served")
    reach = fields.raw.get("max_relative_positions", -1)
    buckets = fields.raw.get("position_buckets", -1)
    config = DebertaConfig(
        family="deberta-v2",
        pad_token_id=fields.token("pad_token_id", 0),
        norm_eps=fields.epsilon("layer_norm_eps", 1e-7),
        embedding_size=fields.size("embedding_size", sizes["hidden_size"]),
        num_token_types=fields.token("type_vocab_size", 0),
        dropout=fields.rate("hidden_dropout_prob", 0.1),
        num_buckets=buckets if isinstance(buckets, int) and buckets > 0 else 0,
        reach=reach if isinstance(reach, int) and reach > 0 else sizes["max_positions"],
        kinds=_kinds(fields),
        shares_maps=_flag("share_att_key", False, fields),
        norms_distances="layer_norm" in str(fields.raw.get("norm_rel_ebd", "none")).lower().split("|"),
        places_tokens=_flag("position_biased_input", True, fields),
        convolution_size=_convolution_size(fields),
        convolution_activation=_convolution_activation(fields),
        **sizes,
    )
    if config.num_buckets and (config.num_buckets < 4 or config.reach <= config.num_buckets // 2 + 1):
        raise fields.error(
            f"{config.num_buckets} position_buckets up to max_relative_positions {config.reach} "
            "have no logarithmic half"
        )
    return config


def _kinds(fields: Fields) -> tuple[ScoreKind, ...]:
    found = fields.raw.get("pos_att_type")
    names = found.lower().split("|") if isinstance(found, str) else found
    if not isinstance(names, list) or not names or any(str(name).strip() not in _KINDS for name in names):
        raise fields.error(f"pos_att_type is {found!r}; it is 'c2p', 'p2c' or both, with '|' between them")
    own = {str(name).strip() for name in names}
    return tuple(kind for kind in _KINDS if kind in own)


def _convolution_size(fields: Fields) -> int:
    size = fields.raw.get("conv_kernel_size") or 0
    if not isinstance(size, int) or size < 0 or (size and size % 2 == 0):
        raise fields.error(f"conv_kernel_size is {size!r}; it must be 0 or odd")
    return int(size)


def _convolution_activation(fields: Fields) -> ConvolutionActivation:
    name = fields.raw.get("conv_act", "tanh")
    found = next((one for one in _ACTIVATIONS if one == name), None)
    if found is None:
        raise fields.error(f"conv_act is {name!r}; it is one of {', '.join(_ACTIVATIONS)}")
    return found


def _flag(key: str, default: bool, fields: Fields) -> bool:
    found = fields.raw.get(key, default)
    if not isinstance(found, bool):
        raise fields.error(f"{key} is {found!r}; it must be true or false")
    return found
