"""Maps modules of Hugging Face models to Peltier's numbering of projections, norms and sub-layers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from peltier_backbone.checkpoint.bert_family import BERT_FAMILIES
from peltier_backbone.checkpoint.config import (
    BackboneConfig,
    BertConfig,
    DebertaConfig,
    EuroBertConfig,
    ModernBertConfig,
    RotaryBertConfig,
    T5Config,
)

ModuleSite = tuple[str, int]

_PREFIXES = (
    "bert.",
    "nomic_bert.",
    "gte.",
    "roberta.",
    "electra.",
    "distilbert.",
    "mpnet.",
    "deberta.",
    "model.",
    "transformer.",
    "base_model.model.",
    "base_model.",
)
_WRAPPERS = ("base_model.", "model.", "model.")
_ATTENTION = {"q": "query", "k": "key", "v": "value", "o": "attention_output"}
# A gated layer has a module for each half of the backbone's map.
_GATED = {"gate_proj": "intermediate", "up_proj": "intermediate_factor", "down_proj": "output"}
_DISTILBERT = "transformer.layer."
_DEBERTA = (".query_proj.", ".key_proj.", ".value_proj.")
_MPNET = (".attention.attn.", ".attention.LayerNorm.")


@dataclass(frozen=True)
class ModuleSites:
    """Modules by their names below the base model: `encoder.layer.0.attention.self.query`.

    `projections` and `biases` give a site and its block or attention, `norms` a norm's index, `sublayers` the site and
    block of the module that holds a bottleneck, `attentions` an attention's index.
    """

    projections: Mapping[str, ModuleSite]
    norms: Mapping[str, int]
    sublayers: Mapping[str, ModuleSite]
    attentions: Mapping[str, int]


def find_sites(config: BackboneConfig) -> ModuleSites:
    if isinstance(config, EuroBertConfig):
        return _eurobert(config)
    if isinstance(config, ModernBertConfig):
        return _modernbert(config)
    if isinstance(config, DebertaConfig):
        return _deberta(config)
    if isinstance(config, RotaryBertConfig):
        return _rotary_bert(config)
    return _t5(config) if isinstance(config, T5Config) else _bert(config)


def _modernbert(config: ModernBertConfig) -> ModuleSites:
    """Query, key and value come from one module, and both halves of `intermediate`. No other library has bottlenecks
    here."""
    projections: dict[str, ModuleSite] = {}
    norms = {"embeddings.norm": 0, "final_norm": 2 * config.num_layers}
    for i in range(config.num_layers):
        layer = f"layers.{i}"
        projections[f"{layer}.attn.Wqkv"] = ("query_key_value", i)
        projections[f"{layer}.attn.Wo"] = ("attention_output", i)
        projections[f"{layer}.mlp.Wi"] = ("gated_intermediate", i)
        projections[f"{layer}.mlp.Wo"] = ("output", i)
        norms |= {f"{layer}.mlp_norm": 2 * i + 1} | ({f"{layer}.attn_norm": 2 * i} if i else {})
    attentions = {f"layers.{i}.attn": i for i in range(config.num_layers)}
    return ModuleSites(projections, norms, {}, attentions)


def _bert(config: BackboneConfig) -> ModuleSites:
    projections: dict[str, ModuleSite] = {"pooler.dense": ("pooler", 0)}
    norms = {} if config.narrow_norms else {"embeddings.LayerNorm": 0}
    sublayers: dict[str, ModuleSite] = {}
    attentions: dict[str, int] = {}
    for i in range(config.num_layers):
        layer = f"encoder.layer.{i}"
        attentions[f"{layer}.attention.self"] = i
        projections |= {f"{layer}.attention.self.{name}": (name, i) for name in ("query", "key", "value")}
        projections[f"{layer}.attention.output.dense"] = ("attention_output", i)
        projections |= {f"{layer}.{name}.dense": (name, i) for name in ("intermediate", "output")}
        norms |= {f"{layer}.attention.output.LayerNorm": 2 * i + 1, f"{layer}.output.LayerNorm": 2 * i + 2}
        sublayers |= {f"{layer}.attention.output": ("attention", i), f"{layer}.output": ("ffn", i)}
    return ModuleSites(projections, norms, sublayers, attentions)


def _rotary_bert(config: RotaryBertConfig) -> ModuleSites:
    """No other library has bottlenecks or prefixes here."""
    inner = _GATED if config.kind.gated else {"fc1": "intermediate", "fc2": "output"}
    norms = {"embeddings.LayerNorm": 0}
    for i in range(config.num_layers):
        layer = f"layers.{i}"
        norms |= {f"{layer}.post_attention_layernorm": 2 * i + 1, f"{layer}.post_mlp_layernorm": 2 * i + 2}
    return ModuleSites({"pooler.dense": ("pooler", 0), **_separate(inner, config)}, norms, {}, {})


def _eurobert(config: EuroBertConfig) -> ModuleSites:
    norms = {"norm": 2 * config.num_layers}
    for i in range(config.num_layers):
        norms |= {f"layers.{i}.input_layernorm": 2 * i, f"layers.{i}.post_attention_layernorm": 2 * i + 1}
    return ModuleSites(_separate(_GATED, config), norms, {}, {})


def _separate(inner: Mapping[str, str], config: BackboneConfig) -> dict[str, ModuleSite]:
    """The projections of layers with a module for each map, of which `inner` are those of the feed-forward layer."""
    own = {f"self_attn.{short}_proj": site for short, site in _ATTENTION.items()}
    own |= {f"mlp.{name}": site for name, site in inner.items()}
    return {f"layers.{i}.{name}": (site, i) for i in range(config.num_layers) for name, site in own.items()}


def _t5(config: T5Config) -> ModuleSites:
    projections: dict[str, ModuleSite] = {"lm_head": ("lm_head", 0)}
    norms: dict[str, int] = {}
    sublayers: dict[str, ModuleSite] = {}
    attentions: dict[str, int] = {}
    for stack, i, block in _blocks(config):
        layers = f"{stack}.block.{i}.layer"
        own = {f"{layers}.0.SelfAttention": block}
        if stack == "decoder":
            own[f"{layers}.1.EncDecAttention"] = block + config.num_decoder_layers
        attentions |= own
        for name, index in own.items():
            projections |= {f"{name}.{short}": (site, index) for short, site in _ATTENTION.items()}
        last = len(own)
        # A gated layer has a module for each half of the backbone's map.
        inner = {"wi_0": "intermediate", "wi_1": "intermediate_factor"} if config.gated else {"wi": "intermediate"}
        projections |= {f"{layers}.{last}.DenseReluDense.{name}": (site, block) for name, site in inner.items()}
        projections[f"{layers}.{last}.DenseReluDense.wo"] = ("output", block)
        sublayers |= {f"{layers}.0": ("attention", block), f"{layers}.{last}": ("ffn", block)}
        first = 2 * i if stack == "encoder" else 2 * config.num_layers + 1 + 3 * i
        norms |= {f"{layers}.{j}.layer_norm": first + j for j in range(last + 1)}
    norms["encoder.final_layer_norm"] = 2 * config.num_layers
    norms["decoder.final_layer_norm"] = config.num_norms - 1
    return ModuleSites(projections, norms, sublayers, attentions)


def _blocks(config: T5Config) -> Iterator[tuple[str, int, int]]:
    for i in range(config.num_layers):
        yield "encoder", i, i
    for i in range(config.num_decoder_layers):
        yield "decoder", i, config.num_layers + i


def _deberta(config: DebertaConfig) -> ModuleSites:
    """Without what other libraries let act on the queries and keys of distances too: adapters of queries and keys, if
    these share their maps, and prefixes."""
    found = _bert(config)
    shared = ("query", "key") if config.shares_maps else ()
    projections = {name: site for name, site in found.projections.items() if site[0] not in shared}
    del projections["pooler.dense"]
    return replace(found, projections=projections, attentions={})


def other_family(name: str, config: BackboneConfig) -> str | None:
    """What the tensor `name` begins with below its wrappers, if that is the prefix of a task model of another family of
    encoders than the backbone's."""
    own = BERT_FAMILIES[config.family].prefixes if isinstance(config, BertConfig) else ()
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper)
    found = (prefix for family in BERT_FAMILIES.values() for prefix in family.prefixes if name.startswith(prefix))
    return next((prefix for prefix in found if prefix not in own), None)


def base_names(name: str) -> str:
    """The name of a tensor below the base model, without the prefixes of wrappers and task classes."""
    shortened = True
    while shortened:
        shortened = False
        for prefix in _PREFIXES:
            if name.startswith(prefix) and not name.startswith(_DISTILBERT):
                name, shortened = name.removeprefix(prefix), True
    if name.startswith(_DISTILBERT):
        return BERT_FAMILIES["distilbert"].bert_name(name)
    if any(own in name for own in _DEBERTA):
        return BERT_FAMILIES["deberta-v2"].bert_name(name)
    return BERT_FAMILIES["mpnet"].bert_name(name) if any(own in name for own in _MPNET) else name
