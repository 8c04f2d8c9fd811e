"""The configuration of EuroBERT; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from peltier_backbone.checkpoint.fields import Fields, read_rotary
from peltier_backbone.checkpoint.modernbert_config import ModernBertConfig, read_sizes
from peltier_backbone.checkpoint.sentence_files import SentencePooling

# Its own classifier reads the mean of logits if it pools late: adapters read the mean of states instead.
_POOLINGS: Mapping[str, SentencePooling] = {"bos": "first", "mean": "mean", "late": "mean"}


@dataclass(frozen=True)
class EuroBertConfig(ModernBertConfig):
    """The shape of a EuroBERT (Boizard et al. 2025): a ModernBERT whose norms are RMS norms, without local layers and
    without a norm of the embeddings. Queries of `num_heads` heads share the keys and values of `num_key_heads`;
    `slowdown` divides the angles of positions."""

    num_key_heads: int = 1
    slowdown: float = 1.0

    def place_norm(self, index: int) -> int:
        return index // 2

    @property
    def num_parameters(self) -> int:
        maps = 2 * self.num_heads + 2 * self.num_key_heads
        layer = self.hidden_size * (maps * self.head_size + 3 * self.intermediate_size)
        return self.hidden_size * (self.vocab_size + self.num_norms) + self.num_layers * layer


def parse_eurobert(fields: Fields) -> EuroBertConfig:
    """Build the configuration; raises a `BackboneError` that names a missing or unsupported field."""
    sizes = read_sizes(fields)
    for key, served in (("attention_bias", False), ("mlp_bias", False), ("hidden_act", "silu")):
        fields.only(key, served)
    fields.only("head_dim", sizes["hidden_size"] // sizes["num_heads"])
    num_key_heads = fields.size("num_key_value_heads", sizes["num_heads"])
    if sizes["num_heads"] % num_key_heads:
        raise fields.error(f"num_key_value_heads {num_key_heads} does not divide its {sizes['num_heads']} heads")
    pooling = fields.raw.get("classifier_pooling") or fields.raw.get("clf_pooling") or "late"
    if pooling not in _POOLINGS:
        raise fields.error(f"classifier_pooling is {pooling!r}; it is one of {', '.join(_POOLINGS)}")
    theta, slowdown = read_rotary(10_000.0, fields)
    return EuroBertConfig(
        family="eurobert",
        pad_token_id=fields.token("pad_token_id", 128001),
        norm_eps=fields.epsilon("rms_norm_eps", 1e-5),
        window=sizes["max_positions"],
        is_local=(False,) * sizes["num_layers"],
        global_theta=theta,
        local_theta=theta,
        classifier_pooling=_POOLINGS[pooling],
        dropout=0.0,
        num_key_heads=num_key_heads,
        slowdown=slowdown,
        **sizes,
    )
