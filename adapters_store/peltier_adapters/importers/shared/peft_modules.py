"""The modules of transformers' models that PEFT can wrap, by their names there."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from peltier_backbone.checkpoint.bert_config import BertConfig
from peltier_backbone.checkpoint.bert_family import BERT_FAMILIES
from peltier_backbone.checkpoint.config import (
    BackboneConfig,
    DebertaConfig,
    EuroBertConfig,
    ModernBertConfig,
    RotaryBertConfig,
    T5Config,
)
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.module_sites import find_sites

# The kinds of models, by PEFT's names of their tasks. A model of features has no head.
ModelKind = Literal["SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS", "SEQ_2_SEQ_LM", "FEATURE_EXTRACTION"]
_CLASSES: dict[str, ModelKind] = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
}
_KINDS: tuple[ModelKind, ...] = ("SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS", "SEQ_2_SEQ_LM", "FEATURE_EXTRACTION")
# Families whose classifier of texts is one layer, which reads a pooler.
POOLED_CLASSIFIERS = ("bert", "nomic_bert", "gte", "deberta-v2")
_POOLED_ENCODERS = ("bert", "roberta", "xlm-roberta", "camembert", "mpnet", "jina_embeddings_v3")
# Of relatives whose classifier of texts is not one layer.
_CLASSIFIERS = {
    "bert": ("classifier",), "nomic_bert": ("classifier",), "gte": ("classifier",), "deberta-v2": ("classifier",),
    "distilbert": ("pre_classifier", "classifier"), "eurobert": ("dense", "classifier"),
}  # fmt: skip
_OTHER_CLASSIFIERS = ("classifier.dense", "classifier.out_proj")


@dataclass(frozen=True)
class Module:
    """A module of a model: its whole name; what it is; whether it has a bias; whether it is of the head. Without
    `needed` models of this kind may lack it."""

    name: str
    kind: Literal["linear", "embedding", "norm"]
    biased: bool = False
    of_head: bool = False
    needed: bool = True


def find_kind(task_type: Any, base_class: Any, tops: Iterable[str]) -> ModelKind:
    """The kind of the model that PEFT adapted, by its task type, its class, or else the names of the outermost
    modules in its file."""
    if task_type in _KINDS:
        return _KINDS[_KINDS.index(task_type)]
    ending = next((ending for ending in _CLASSES if str(base_class).endswith(ending)), None)
    if ending is not None:
        return _CLASSES[ending]
    own = set(tops)
    if "qa_outputs" in own:
        return "QUESTION_ANS"
    return "SEQ_CLS" if "classifier" in own else "FEATURE_EXTRACTION"


def model_modules(config: BackboneConfig, kind: ModelKind, tensors: Iterable[str]) -> list[Module]:
    """The modules of a model of this kind. Names of `tensors` in it tell what the names of the encoder's
    modules begin with."""
    encoder = [*_encoder(config), *_pooler(config, kind)]
    prefix = _prefix(tensors, [f"{module.name}." for module in encoder if module.kind != "embedding"])
    inner = [replace(own, name=f"{prefix}{own.name}") for own in encoder]
    return inner + list(_head(config, kind))


def _prefix(tensors: Iterable[str], modules: Sequence[str]) -> str:
    for name in tensors:
        for module in modules:
            prefix, found, _ = name.partition(module)
            if found and (not prefix or prefix.endswith(".")):
                return prefix
    return ""


def _encoder(config: BackboneConfig) -> Iterator[Module]:
    unbiased = BERT_FAMILIES[config.family].unbiased if isinstance(config, BertConfig) else frozenset()
    sites = find_sites(config)
    for name, (site, _) in sites.projections.items():
        if site in ("pooler", "lm_head"):
            continue
        map_name = "query_key_value" if site in ("query", "key", "value") else site.removesuffix("_factor")
        yield Module(_own_name(name, config), "linear", config.biased and map_name not in unbiased)
    for name in sites.norms:
        yield Module(_own_name(name, config), "norm", config.biased)
    if isinstance(config, BertConfig):
        yield from _embeddings(config)
    elif isinstance(config, T5Config):
        yield Module("shared", "embedding")
        stacks = ("encoder", "decoder")
        yield from (
            Module(f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias", "embedding") for stack in stacks
        )
    else:
        yield Module("embed_tokens" if isinstance(config, EuroBertConfig) else "embeddings.tok_embeddings", "embedding")


def _embeddings(config: BertConfig) -> Iterator[Module]:
    family = BERT_FAMILIES[config.family]
    if config.narrow_norms:
        yield Module("embeddings.LayerNorm", "norm", biased=True)
    tables = ["word_embeddings"]
    tables += [] if isinstance(config, RotaryBertConfig) else ["position_embeddings"]
    tables += ["token_type_embeddings"] if family.embeds_types else []
    yield from (Module(f"embeddings.{table}", "embedding") for table in tables)
    if isinstance(config, DebertaConfig):
        yield from _deberta(config)
    elif config.factored:
        yield Module("embeddings_project", "linear", biased=True)
    if config.relative:
        yield Module("encoder.relative_attention_bias", "embedding")


def _deberta(config: DebertaConfig) -> Iterator[Module]:
    yield Module("encoder.rel_embeddings", "embedding")
    if config.norms_distances:
        yield Module("encoder.LayerNorm", "norm", biased=True)
    if config.factored:
        yield Module("embeddings.embed_proj", "linear")
    own: tuple[str, ...] = ("query_proj", "key_proj")
    if not config.shares_maps:  # `find_sites` has the maps of tokens
        kinds = {"c2p": "pos_key_proj", "p2c": "pos_query_proj"}
        own = tuple(name for kind, name in kinds.items() if kind in config.kinds)
    for number in range(config.num_layers):
        for name in own:
            yield Module(f"encoder.layer.{number}.attention.self.{name}", "linear", biased=True)


def _own_name(name: str, config: BackboneConfig) -> str:
    """The model's name of a module that `find_sites` names as BERT does."""
    if not isinstance(config, BertConfig) or isinstance(config, RotaryBertConfig):
        return name
    name = f"{name}."
    for own, bert in BERT_FAMILIES[config.family].modules.items():
        name = name.replace(bert, own)
    return name.removesuffix(".")


def _pooler(config: BackboneConfig, kind: ModelKind) -> list[Module]:
    """An encoder alone may be loaded without its pooler."""
    if kind == "SEQ_CLS" and config.family in POOLED_CLASSIFIERS and config.family != "deberta-v2":
        return [Module("pooler.dense", "linear", biased=True)]
    pooled = kind == "FEATURE_EXTRACTION" and config.family in _POOLED_ENCODERS
    return [Module("pooler.dense", "linear", biased=True, needed=False)] if pooled else []


def _head(config: BackboneConfig, kind: ModelKind) -> Iterator[Module]:
    if isinstance(config, T5Config):
        yield Module("lm_head", "linear")
        return
    if kind in ("FEATURE_EXTRACTION", "SEQ_2_SEQ_LM"):
        return
    if isinstance(config, ModernBertConfig) and not isinstance(config, EuroBertConfig):
        yield Module("head.dense", "linear", config.classifier_biased)
        yield Module("head.norm", "norm")
        yield Module("classifier", "linear", biased=True, of_head=True)
        return
    if kind == "SEQ_CLS" and config.family == "deberta-v2":
        yield Module("pooler.dense", "linear", biased=True)
    names: tuple[str, ...] = ("qa_outputs",) if kind == "QUESTION_ANS" else ("classifier",)
    if kind == "SEQ_CLS":
        names = _CLASSIFIERS.get(config.family, _OTHER_CLASSIFIERS)
    yield from (Module(name, "linear", biased=True, of_head=True) for name in names)


_MODULES = (".self_attn.k_proj", ".self_attn.v_proj")
# Tensors that have a row for each output of a module.
_ROWS = r"(.*)\.(lora_B\.weight|lora_magnitude_vector(\.weight)?|ia3_l|vera_lambda_b)"


def num_sharing(module: str, config: BackboneConfig) -> int:
    """How many heads share each key or value that `module` computes; 1 if every head has its own."""
    if not isinstance(config, EuroBertConfig) or not module.endswith(_MODULES):
        return 1
    return config.num_heads // config.num_key_heads


def repeat_heads(module: str, rows: Tensor, config: BackboneConfig) -> Tensor:
    """From `rows` for the outputs of `module`, a copy for each head that shares them: [outputs, …] -> [hidden, …]."""
    num = num_sharing(module, config)
    if num == 1:
        return rows
    heads = rows.reshape(config.num_heads // num, -1, *rows.shape[1:])
    return heads.repeat_interleave(num, 0).flatten(0, 1)


def repeat_shared(checkpoint: Checkpoint, config: BackboneConfig) -> None:
    """Repeats the rows of all tensors of shared keys and values in `checkpoint`. Raises an `AdapterError` for another
    number of rows than that of the backbone's map."""
    for match in checkpoint.matches(_ROWS):
        num = num_sharing(match[1], config)
        if num == 1:
            continue
        rows, wanted = checkpoint.take(match[0]), config.hidden_size // num
        if len(rows) == wanted:
            rows = repeat_heads(match[1], rows, config)
        elif len(rows) > 1:  # IA3 has one row of factors of inputs
            raise AdapterError(f"{checkpoint.where}: tensor {match[0]!r} has {len(rows)} rows; it must have {wanted}")
        checkpoint.put_back({match[0]: rows})
