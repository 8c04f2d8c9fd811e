"""The configuration of post-norm encoders with rotary positions; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from peltier_backbone.checkpoint.bert_config import BertConfig, read_sizes
from peltier_backbone.checkpoint.bert_family import BERT_FAMILIES
from peltier_backbone.checkpoint.fields import Fields, check_heads, read_rotary
from peltier_backbone.checkpoint.shape import RotaryBertFamily


@dataclass(frozen=True)
class RotaryBertConfig(BertConfig):
    """The shape of a post-norm encoder whose queries and keys turn by their positions, by angles of base `theta`
    divided by `slowdown` (Su et al. 2021). `max_positions` bounds the rows."""

    theta: float
    slowdown: float


@dataclass(frozen=True)
class _File:
    """What a family's files leave out, and the values of other keys that are `served`: the forward pass has no others.
    `older` are the keys of files for the authors' own code."""

    pad_token_id: int
    num_token_types: int
    norm_eps: float
    theta: float
    dropout: float
    served: Mapping[str, object] = field(default_factory=dict)
    older: Mapping[str, str] = field(default_factory=dict)

    def renamed(self, fields: Fields) -> Fields:
        """The file with the newer keys."""
        missing = {key: fields.raw.get(own) for key, own in self.older.items() if fields.raw.get(key) is None}
        return replace(fields, raw={**fields.raw, **missing})


_NOMIC_KEYS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "max_trained_positions",
    "layer_norm_eps": "layer_norm_epsilon",
    "rope_theta": "rotary_emb_base",
}
_NOMIC: Mapping[str, object] = {
    "activation_function": "swiglu",
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "prenorm": False,
    "parallel_block": False,
    "use_rms_norm": False,
    "causal": False,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "num_experts": 0,
    "moe_every_n_layers": 0,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}
_GTE: Mapping[str, object] = {
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "logn_attention_clip1": False,
}
_FILES: Mapping[RotaryBertFamily, _File] = {
    "nomic_bert": _File(0, 2, 1e-12, 1000.0, 0.0, _NOMIC, _NOMIC_KEYS),
    "gte": _File(1, 1, 1e-12, 160_000.0, 0.1, _GTE),
    "jina_embeddings_v3": _File(1, 1, 1e-5, 20_000.0, 0.1),
}


def parse_rotary_bert(fields: Fields, family: RotaryBertFamily) -> RotaryBertConfig:
    """Build the configuration; raises a `BackboneError` that names a missing or unsupported field."""
    file = _FILES[family]
    fields = file.renamed(fields)
    fields.only("hidden_act", "silu" if BERT_FAMILIES[family].swish else "gelu")
    for key, served in file.served.items():
        fields.only(key, served)
    sizes = read_sizes(fields, family)
    # Beyond these positions the authors' code turns by other angles.
    sizes["max_positions"] = min(sizes["max_positions"], fields.size("max_trained_positions", sizes["max_positions"]))
    head_size = check_heads(sizes["hidden_size"], sizes["num_heads"], fields)
    fields.only("head_dim", head_size)
    theta, slowdown = read_rotary(file.theta, fields)
    return RotaryBertConfig(
        family=family,
        pad_token_id=fields.token("pad_token_id", file.pad_token_id),
        norm_eps=fields.epsilon("layer_norm_eps", file.norm_eps),
        embedding_size=sizes["hidden_size"],
        num_token_types=fields.token("type_vocab_size", file.num_token_types),
        dropout=fields.rate("hidden_dropout_prob", file.dropout),
        theta=theta,
        slowdown=slowdown,
        **sizes,
    )
