"""The configuration of ModernBERT; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from peltier_backbone.checkpoint.fields import ENCODER_SIZES, Fields, Yarn, check_heads, positive, read_yarn
from peltier_backbone.checkpoint.sentence_files import SentencePooling
from peltier_backbone.checkpoint.shape import EncoderConfig

_POOLINGS: Mapping[str, SentencePooling] = {"cls": "first", "mean": "mean"}
_GLOBAL: Literal["full_attention"] = "full_attention"
_LOCAL: Literal["sliding_attention"] = "sliding_attention"
# The key of the angles' base and its default, of the global and of the local layers.
_THETAS = {_GLOBAL: ("global_rope_theta", 160_000.0), _LOCAL: ("local_rope_theta", 10_000.0)}


@dataclass(frozen=True)
class ModernBertConfig(EncoderConfig):
    """The shape of a ModernBERT (Warner et al. 2024). A layer, its block and its attention have the same number.

    Layers whose `is_local` is true attend to tokens at most `window` away, the others to all. Rotary positions turn by
    angles of base `local_theta` in local layers, else `global_theta`, stretched by `global_yarn`. `classifier_pooling`
    and `classifier_activation` are those of the model's own classifier, and its dense layer may be `classifier_biased`.
    """

    pre_norm: ClassVar[bool] = True
    biased: ClassVar[bool] = False
    max_positions: int
    window: int
    is_local: tuple[bool, ...]
    global_theta: float
    local_theta: float
    global_yarn: Yarn | None = None
    classifier_pooling: SentencePooling = "first"
    classifier_activation: str = "gelu"
    classifier_biased: bool = False

    @property
    def num_norms(self) -> int:
        """The embedding norm, which is also that before the first attention, one before every other sub-layer, and the
        final norm."""
        return 2 * self.num_layers + 1

    def place_norm(self, index: int) -> int:
        return index // 2 if index else -1

    @property
    def expansion_size(self) -> int:
        """Width of `intermediate`: the activated columns, then their factors."""
        return 2 * self.intermediate_size

    @property
    def num_parameters(self) -> int:
        layer = 4 * self.hidden_size**2 + 3 * self.hidden_size * self.intermediate_size
        return self.hidden_size * (self.vocab_size + self.num_norms) + self.num_layers * layer

    @property
    def max_tokens(self) -> int:
        return self.max_positions


def read_sizes(fields: Fields) -> dict[str, Any]:
    """The sizes by their names in the configuration."""
    values: dict[str, Any] = {name: fields.size(key) for name, key in ENCODER_SIZES.items()}
    check_heads(values["hidden_size"], values["num_heads"], fields)
    return values


def parse_modernbert(fields: Fields) -> ModernBertConfig:
    """Build the configuration; raises a `BackboneError` that names a missing or unsupported field."""
    for key in ("attention_bias", "mlp_bias", "norm_bias"):
        fields.only(key, False)
    fields.only("hidden_activation", "gelu")
    values = read_sizes(fields)
    return ModernBertConfig(
        family="modernbert",
        pad_token_id=fields.token("pad_token_id", 50283),
        norm_eps=fields.epsilon("norm_eps", 1e-5),
        window=_window(fields),
        is_local=_local_layers(values["num_layers"], fields),
        global_theta=_theta(_GLOBAL, fields),
        local_theta=_theta(_LOCAL, fields),
        global_yarn=_yarn(fields),
        classifier_pooling=_pooling(fields),
        classifier_activation=str(fields.raw.get("classifier_activation", "gelu")),
        classifier_biased=bool(fields.raw.get("classifier_bias", False)),
        dropout=fields.rate("mlp_dropout", 0.0),
        **values,
    )


def _window(fields: Fields) -> int:
    """How far a token of a local layer sees to each side."""
    width = fields.size("local_attention", 128)
    if width < 2:
        raise fields.error(f"local_attention is {width}; it must be at least 2")
    fields.only("sliding_window", width // 2)
    return width // 2


def _local_layers(num_layers: int, fields: Fields) -> tuple[bool, ...]:
    """Whether each layer is local: newer files name the type of each layer, older ones count from one global layer to
    the next."""
    kinds = fields.raw.get("layer_types")
    if kinds is None:
        interval = fields.size("global_attn_every_n_layers", 3)
        return tuple(layer % interval > 0 for layer in range(num_layers))
    if not isinstance(kinds, list) or len(kinds) != num_layers or not all(kind in _THETAS for kind in kinds):
        raise fields.error(f"layer_types must name {_GLOBAL!r} or {_LOCAL!r} for each of {num_layers} layers")
    return tuple(kind == _LOCAL for kind in kinds)


def _theta(kind: Literal["full_attention", "sliding_attention"], fields: Fields) -> float:
    """The base of the angles: newer files have it in `rope_parameters`, older ones in a key of its own."""
    key, default = _THETAS[kind]
    found = _rope_parameters(kind, fields).get("rope_theta", fields.raw.get(key, default))
    return positive(key, found, fields)


def _yarn(fields: Fields) -> Yarn | None:
    own = _rope_parameters(_GLOBAL, fields)
    return read_yarn(own, fields) if own.get("rope_type") == "yarn" else None


def _rope_parameters(kind: Literal["full_attention", "sliding_attention"], fields: Fields) -> dict[str, Any]:
    """What a newer file says about the angles of one kind of layers."""
    fields.only("rope_scaling", None)
    known = fields.raw.get("rope_parameters")
    own = {} if known is None else known.get(kind) if isinstance(known, dict) else None
    served = ("default", "yarn") if kind == _GLOBAL else ("default",)
    if not isinstance(own, dict) or own.get("rope_type", "default") not in served:
        names = " or ".join(map(repr, served))
        raise fields.error(f"rope_parameters must have {kind!r} of rope_type {names}")
    return own


def _pooling(fields: Fields) -> SentencePooling:
    found = fields.raw.get("classifier_pooling", "cls")
    if found not in _POOLINGS:
        raise fields.error(f"classifier_pooling is {found!r}; it is one of {', '.join(_POOLINGS)}")
    return _POOLINGS[found]
