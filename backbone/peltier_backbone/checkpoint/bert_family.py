"""Where the checkpoints of BERT's relatives differ from BERT's; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from peltier_backbone.checkpoint.shape import PostNormFamily

# The maps of a layer.
MapName = Literal["query_key_value", "attention_output", "intermediate", "output"]


@dataclass(frozen=True)
class BertFamily:
    """A family of post-norm encoders. Its task models name the encoder's tensors with one of the `prefixes`, and have
    `pretraining` heads, which the encoder lacks. `keys` are its names of BERT's keys in config.json, `modules`
    BERT's names of its modules.

    `embeds_types`: there is a table of token types. `typed`: token types are read; other families read every token as
    type zero, also in pairs. `pooled`: the encoder has a pooler. `after_pad`: a row's first position is the padding
    index plus one, otherwise zero, and a token that is the padding has the padding index as its position. `factored`:
    embeddings have a width of their own, and a map to the hidden size. `relative`: attention also has a bias by
    distance, as T5's encoder, which all layers share. `rotary`: positions are rotary, and there is no table of them.
    `gated`: feed-forward layers are gated, as those of T5 v1.1; `swish` is their activation, otherwise GELU. The maps
    named by `unbiased` have no bias.
    """

    prefixes: tuple[str, ...]
    pretraining: tuple[str, ...]
    keys: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    embeds_types: bool = True
    typed: bool = False
    pooled: bool = False
    after_pad: bool = False
    factored: bool = False
    relative: bool = False
    rotary: bool = False
    gated: bool = False
    swish: bool = False
    unbiased: frozenset[MapName] = frozenset()

    def key(self, name: str) -> str:
        """Its key in config.json for BERT's key `name`."""
        return self.keys.get(name, name)

    def bert_name(self, name: str) -> str:
        """BERT's name of its tensor `name`, which may have the prefix."""
        for prefix in self.prefixes:
            name = name.removeprefix(prefix)
        for own, module in self.modules.items():
            name = name.replace(own, module)
        return name


_DISTILBERT_KEYS = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
}
_DISTILBERT_MODULES = {
    "transformer.layer.": "encoder.layer.",
    "attention.q_lin.": "attention.self.query.",
    "attention.k_lin.": "attention.self.key.",
    "attention.v_lin.": "attention.self.value.",
    "attention.out_lin.": "attention.output.dense.",
    "sa_layer_norm.": "attention.output.LayerNorm.",
    "ffn.lin1.": "intermediate.dense.",
    "ffn.lin2.": "output.dense.",
    "output_layer_norm.": "output.LayerNorm.",
}
_MPNET_MODULES = {
    "attention.attn.q.": "attention.self.query.",
    "attention.attn.k.": "attention.self.key.",
    "attention.attn.v.": "attention.self.value.",
    "attention.attn.o.": "attention.output.dense.",
    "attention.LayerNorm.": "attention.output.LayerNorm.",
}
_DEBERTA_MODULES = {f"attention.self.{part}_proj.": f"attention.self.{part}." for part in ("query", "key", "value")}
# The names of transformers, and those of the published files.
_ROTARY_MODULES = {
    "encoder.layers.": "layers.",
    "layers.": "encoder.layer.",
    "emb_ln.": "embeddings.LayerNorm.",
    "self_attn.q_proj.": "attention.self.query.",
    "self_attn.k_proj.": "attention.self.key.",
    "self_attn.v_proj.": "attention.self.value.",
    "self_attn.o_proj.": "attention.output.dense.",
    "attn.Wqkv.": "attention.self.query+key+value.",
    "mixer.Wqkv.": "attention.self.query+key+value.",
    "attention.qkv_proj.": "attention.self.query+key+value.",
    "attn.out_proj.": "attention.output.dense.",
    "mixer.out_proj.": "attention.output.dense.",
    "attention.o_proj.": "attention.output.dense.",
    "post_attention_layernorm.": "attention.output.LayerNorm.",
    "norm1.": "attention.output.LayerNorm.",
    "attn_ln.": "attention.output.LayerNorm.",
    "mlp.gate_proj.": "intermediate.gate.",
    "mlp.fc12.": "intermediate.gate.",
    "mlp.up_proj.": "intermediate.factor.",
    "mlp.fc11.": "intermediate.factor.",
    "mlp.up_gate_proj.": "intermediate.factor+gate.",
    "mlp.fc1.": "intermediate.dense.",
    "mlp.down_proj.": "output.dense.",
    "mlp.fc2.": "output.dense.",
    "post_mlp_layernorm.": "output.LayerNorm.",
    "norm2.": "output.LayerNorm.",
    "mlp_ln.": "output.LayerNorm.",
}
_ROBERTA = BertFamily(("roberta.",), ("lm_head.",), after_pad=True)
BERT_FAMILIES: Mapping[PostNormFamily, BertFamily] = {
    "bert": BertFamily(("bert.",), ("cls.",), typed=True, pooled=True),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": BertFamily(
        ("distilbert.",), ("vocab_",), keys=_DISTILBERT_KEYS, modules=_DISTILBERT_MODULES, embeds_types=False
    ),
    "electra": BertFamily(("electra.",), ("generator_", "discriminator_"), typed=True, factored=True),
    "deberta-v2": BertFamily(
        ("deberta.",), ("cls.", "lm_predictions.", "mask_predictions."), modules=_DEBERTA_MODULES, typed=True
    ),
    "mpnet": BertFamily(
        ("mpnet.",), ("lm_head.",), modules=_MPNET_MODULES, embeds_types=False, after_pad=True, relative=True
    ),
    "nomic_bert": BertFamily(
        ("nomic_bert.", "bert."),
        ("cls.",),
        modules=_ROTARY_MODULES,
        typed=True,
        rotary=True,
        gated=True,
        swish=True,
        unbiased=frozenset(get_args(MapName)),
    ),
    "gte": BertFamily(
        ("gte.", "new."),
        ("lm_head.",),
        modules=_ROTARY_MODULES,
        typed=True,
        rotary=True,
        gated=True,
        unbiased=frozenset(("intermediate",)),
    ),
    "jina_embeddings_v3": BertFamily(("roberta.",), ("lm_head.",), modules=_ROTARY_MODULES, rotary=True),
}
