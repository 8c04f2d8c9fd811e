"""Reads directories that Hugging Face PEFT saves (docs/methods.md#peft): LoRA with patterns of ranks and alphas and
rank-stabilised scales, DoRA, VeRA, IA3, prefix, prompt and LayerNorm tuning. Changed base weights are refused, and
files whose modules are not those that the configuration names."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.bert import Bert
from peltier_backbone.bert.weights import canonical_bert
from peltier_backbone.checkpoint.bert_family import BERT_FAMILIES
from peltier_backbone.checkpoint.checkpoint import find_checkpoint, read_tensors
from peltier_backbone.checkpoint.config import BackboneConfig, BertConfig
from peltier_backbone.load import read_fingerprint
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint, ConfigFile, find_file, read_checkpoint, read_config
from peltier_adapters.importers.shared.head import take_head, type_of_class
from peltier_adapters.importers.shared.imported import ImportedAdapter, ImportedPart
from peltier_adapters.importers.shared.module_sites import ModuleSite, base_names, find_sites, other_family
from peltier_adapters.importers.shared.parts import (
    LoraPair,
    create_lora,
    create_prefix,
    create_prompt,
    find_lora_module,
    lora_modules,
    map_shape,
    prefix_width,
    take_biases,
    take_down,
    take_norms,
    take_pair,
    unfold_prefix,
)
from peltier_adapters.importers.shared.peft_modules import (
    find_kind,
    model_modules,
    num_sharing,
    repeat_heads,
    repeat_shared,
)
from peltier_adapters.importers.shared.peft_strengths import Factors, Strength, create_scale, find_strength
from peltier_adapters.importers.shared.peft_targets import Targets
from peltier_adapters.spec.tasks import TaskType

_WRAPPER = "base_model.model."
_A, _B = ".lora_A.weight", ".lora_B.weight"
_FACTORS, _MAGNITUDE, _LAMBDA = ".ia3_l", ".lora_magnitude_vector", ".vera_lambda_"
_POOLER, _HEAD_DENSE = "pooler.dense", "head.dense"
# With bias "all" PEFT saves the biases of wrapped modules three times: beside the trained ones also those before. Those
# of modules within a wrapped one keep the adapter's name.
_COPIES = r"(.*\.)(modules_to_save|original_module)\.(?:([^.]+\.)(?=.*\.))?(.*)"
# Others (pissa, olora, corda, loftq, …) change the base model's weights, which their adapters then need.
_PLAIN_STARTS = (True, False, "gaussian", "eva", "orthogonal")
_FILES = ("adapter_model.safetensors", "adapter_model.bin")
# Task types by PEFT's names of them; where it is None, the type follows from the head.
_TASKS: Mapping[str | None, TaskType | None] = {
    None: None,
    "SEQ_CLS": None,
    "SEQ_2_SEQ_LM": None,
    "TOKEN_CLS": "token-classification",
    "QUESTION_ANS": "span",
    "FEATURE_EXTRACTION": "embedding",
}
_NO_EFFECT = ("base_model_name_or_path", "revision", "inference_mode", "peft_version", "init_weights")
_POOLER_TENSORS = r"pooler\.dense\..*"
_MIN_MAX_LENGTH = 3  # tokens, as in `TaskSpec`


def read_peft(path: Path, backbone: Backbone) -> ImportedAdapter:
    """The adapter in directory `path`; raises `AdapterError` for what is not supported."""
    config = read_config(find_file(path, ("adapter_config.json",)))
    checkpoint = read_checkpoint(find_file(path, _FILES))
    kind = config.get("peft_type")
    if not isinstance(kind, str) or kind not in _READERS:
        raise AdapterError(f"{config.where}: peft_type is {kind!r}; supported are {', '.join(_READERS)}")
    _check_family(config, checkpoint, backbone.config)
    config.only("task_type", *_TASKS)
    config.ignore("auto_mapping", "modules_to_save", *_NO_EFFECT)
    targets = _find_targets(config, checkpoint, backbone.config)
    if backbone.config.family == "modernbert":
        _add_frozen_head(checkpoint, backbone)
    repeat_shared(checkpoint, backbone.config)
    pieces, checkpoint = _READERS[kind](targets, checkpoint, backbone)
    config.finish()
    places = find_sites(backbone.config)
    task_type = None if backbone.config.generates else _task_type(config)
    head = None if backbone.config.generates else take_head(checkpoint, backbone.config, task_type)
    if head is not None and task_type == "embedding":
        task_type = None  # a feature extractor with its own head
    pooled = task_type == "embedding" and (bool(checkpoint.matches(_POOLER_TENSORS)) or targets.names_pooler())
    if pooled:
        checkpoint.skip(_POOLER_TENSORS)  # embeddings do not use it
    if head is None and targets.kind == "SEQ_CLS" and checkpoint.matches(_POOLER_TENSORS):
        raise AdapterError(f"{checkpoint.where} has a pooler without the classifier that reads it; save both")
    pieces += take_biases(checkpoint, places, backbone) + take_norms(checkpoint, places, backbone)
    checkpoint.finish()
    if not pieces:
        raise AdapterError(f"{checkpoint.where} has no adapter for this backbone, only a head")
    origin = {"library": "peft", "peft_type": kind, "version": str(config.get("peft_version", "unknown"))}
    return ImportedAdapter(f"peft-{kind.lower()}", pieces, head, task_type=task_type, origin=origin, pooled=pooled)


def _check_family(config: ConfigFile, checkpoint: Checkpoint, backbone: BackboneConfig) -> None:
    """Refuses an adapter whose base model is of another family of encoders than the backbone, by the names of its
    modules or by the library of its class. Names without a family's prefix are those of an encoder alone."""
    other = next(filter(None, (other_family(name, backbone) for name in checkpoint)), None)
    if other is not None:
        raise AdapterError(
            f"{checkpoint.where} has tensors of a model whose modules begin with {other!r}; this backbone's family is "
            f"{backbone.family}"
        )
    mapping = config.get("auto_mapping")
    library = str(mapping.get("parent_library")) if isinstance(mapping, dict) else ""
    match = re.match(r"transformers\.models\.(\w+)\.", library)
    families = {family.replace("-", "_") for family in BERT_FAMILIES}
    if match is not None and match[1] in families and match[1] != backbone.family.replace("-", "_"):
        raise AdapterError(f"{config.where}: parent_library is {library}; this backbone's family is {backbone.family}")


def _add_frozen_head(checkpoint: Checkpoint, backbone: Backbone) -> None:
    """Adds what a ModernBERT's classifier reads and PEFT did not save, because it is that of the base model: the layer
    and the norm with which the base model was pretrained."""
    if not checkpoint.matches(r".*\bclassifier\..*"):
        return
    own, saved = _read_frozen(backbone, "head."), {base_names(name) for name in checkpoint}
    checkpoint.put_back({f"{_WRAPPER}{name}": tensor for name, tensor in own.items() if name not in saved})


def _task_type(config: ConfigFile) -> TaskType | None:
    """The type in the configuration, or the type of the base model's class, which PEFT saves if there is no type."""
    named, mapping = config.get("task_type"), config.get("auto_mapping")
    found = type_of_class(mapping.get("base_model_class")) if isinstance(mapping, dict) else None
    return _TASKS[named] or found


def _find_targets(config: ConfigFile, checkpoint: Checkpoint, backbone: BackboneConfig) -> Targets:
    names = [name.removeprefix(_WRAPPER) for name in checkpoint]
    mapping = config.get("auto_mapping")
    base_class = mapping.get("base_model_class") if isinstance(mapping, dict) else None
    kind = find_kind(config.get("task_type"), base_class, {name.partition(".")[0] for name in names})
    return Targets(config, model_modules(backbone, kind, names), kind)


def _read_frozen(backbone: Backbone, prefix: str = "") -> dict[str, Tensor]:
    """The tensors in the backbone's files, which must still be those that it was loaded from."""
    tensors = read_tensors(find_checkpoint(backbone.name), prefix)
    if read_fingerprint(backbone.name) != backbone.fingerprint:
        raise AdapterError(f"the files of backbone {backbone.name} have changed since it was loaded; load it again")
    return tensors


Read = tuple[list[ImportedPart], Checkpoint]


def _read_lora(targets: Targets, checkpoint: Checkpoint, backbone: Backbone) -> Read:
    """The LoRA part, and the rest of the checkpoint."""
    config = targets.config
    _check_lora(config, checkpoint)
    adapted, rest = _unwrap(checkpoint, r"(.*?)\.lora_.*")
    ranks = {module: rest.num_rows(f"{_base_module(module)}{_A}") for module in adapted}
    strengths = {_base_module(module): find_strength(module, config, rank) for module, rank in ranks.items()}
    for module in strengths:
        if module not in (_POOLER, _HEAD_DENSE):
            find_lora_module("LoRA", module, rest, backbone.config)
    targets.check(rest, "LoRA of", adapted)
    targets.check_rest(rest, adapted)
    if config.get("use_dora", False):
        found = [match[1] for match in rest.matches(rf"(.*){_MAGNITUDE}(\.weight)?")]
        rest.check_promise("magnitude of", strengths, found, f"use_dora of {config.where}")
    if _POOLER in strengths:
        _add_pooler(rest, backbone)
        _merge_dense(rest, _POOLER, strengths.pop(_POOLER), backbone)
    if _HEAD_DENSE in strengths:
        _merge_dense(rest, _HEAD_DENSE, strengths.pop(_HEAD_DENSE), backbone)
    pairs = _take_pairs(rest, strengths, backbone.config)
    factors = _fold_magnitudes(rest, pairs, backbone)
    scale = [create_scale(factors, backbone.config)] if factors else []
    return [*scale, create_lora(pairs, backbone.config)] if pairs else [], rest


def _unwrap(checkpoint: Checkpoint, pattern: str) -> tuple[list[str], Checkpoint]:
    """The modules whose tensors match `pattern`, by the model's own names, and all tensors below the base model."""
    inner = checkpoint.renamed(lambda name: name.removeprefix(_WRAPPER))
    adapted = list(dict.fromkeys(match[1] for match in inner.matches(pattern)))
    _drop_copies(inner)
    return adapted, inner.renamed(lambda name: base_names(name.replace(".base_layer.", ".")))


def _base_module(module: str) -> str:
    return base_names(f"{module}{_A}").removesuffix(_A)


def _drop_copies(checkpoint: Checkpoint) -> None:
    """Drops copies of tensors that `checkpoint` has under their own names. Raises an `AdapterError` for two values."""
    for match in checkpoint.matches(_COPIES):
        before, kind, inner, last = match.groups(default="")
        own = next((name for name in (f"{before}{inner}{last}", f"{before}{last}") if name in checkpoint), None)
        if own is None:
            continue
        copy, tensor = checkpoint.take(match[0]), checkpoint.take(own)
        if kind == "modules_to_save" and not torch.equal(copy, tensor):
            raise AdapterError(f"{checkpoint.where}: tensors {match[0]!r} and {own!r} must be equal")
        checkpoint.put_back({own: tensor})


def _check_lora(config: ConfigFile, checkpoint: Checkpoint) -> None:
    if bool(config.get("use_dora", False)) != bool(checkpoint.matches(rf".*{_MAGNITUDE}.*")):
        raise AdapterError(
            f"{config.where}: use_dora is {json.dumps(config.get('use_dora', False))}, and {checkpoint.where} says "
            "otherwise: the adapters of DoRA have magnitude vectors, others have none"
        )
    config.only("init_lora_weights", *_PLAIN_STARTS)
    config.only("bias", "none", "all", "lora_only")
    # `find_strength` reads the ranks and alphas of the adapted modules; dropout applies only to training.
    config.ignore("r", "lora_alpha", "rank_pattern", "alpha_pattern")
    config.ignore("lora_dropout", "fan_in_fan_out", "eva_config", "megatron_core", "qalora_group_size")


def _take_pairs(
    rest: Checkpoint, strengths: Mapping[str, Strength], config: BackboneConfig
) -> dict[ModuleSite, LoraPair]:
    modules = lora_modules(config)
    pairs = {}
    for module, own in strengths.items():
        place = modules[module]
        pair = take_pair(rest, (f"{module}{_A}", f"{module}{_B}"), place[0], config, own.rank)
        pairs[place] = replace(pair, scale=own.scale)
    return pairs


def _fold_magnitudes(
    rest: Checkpoint, pairs: dict[ModuleSite, LoraPair], backbone: Backbone
) -> dict[ModuleSite, Factors]:
    """The factors m / |W + s B A| of the outputs of DoRA's maps, one norm for each row (Liu et al. 2024, Eq. 5), which
    are multiplied into the up maps of `pairs` too: y = factor (W x + s B A x) + b. W is that of the checkpoint, in
    whatever precision the backbone computes. A scale also multiplies b; the biases that are put back into `rest` undo
    this."""
    found = rest.matches(rf"(.*){_MAGNITUDE}(\.weight)?")
    frozen = _frozen_tensors(backbone) if found else {}
    modules, factors = lora_modules(backbone.config), dict[ModuleSite, Factors]()
    for match in found:
        place = modules.get(match[1])
        if place not in pairs:
            raise AdapterError(f"{rest.where}: {match[0]!r} is the magnitude of a map without LoRA")
        pair = pairs[place]
        own_name = _frozen_name(match[1], backbone.config)
        weight = repeat_heads(match[1], frozen[f"{own_name}.weight"].float(), backbone.config)
        scale = _magnitude(rest, match[1], weight + pair.scaled_b @ pair.a)
        pairs[place] = replace(pair, b=pair.b * scale[:, None])
        factors[place] = Factors(scale, of_input=False)
        if (own := frozen.get(f"{own_name}.bias")) is not None:
            trained = rest.take_if(f"{match[1]}.bias", len(own))
            rest.put_back({f"{match[1]}.bias": (own if trained is None else trained) + own.float() * (1 - scale)})
    return factors


def _frozen_tensors(backbone: Backbone) -> dict[str, Tensor]:
    """The checkpoint's own tensors, by their names below the base model, and those of a BERT by BERT's names."""
    tensors, config = _read_frozen(backbone), backbone.config
    if isinstance(config, BertConfig):
        return canonical_bert(tensors, config, find_checkpoint(backbone.name))
    return {base_names(name): tensor for name, tensor in tensors.items()}


def _frozen_name(module: str, config: BackboneConfig) -> str:
    return BERT_FAMILIES[config.family].bert_name(f"{module}.")[:-1] if isinstance(config, BertConfig) else module


def _magnitude(rest: Checkpoint, module: str, weight: Tensor) -> Tensor:
    """The factor of each row of an adapted `weight`; its norm becomes the magnitude."""
    name = f"{module}{_MAGNITUDE}"
    found = rest.take(name if name in rest else f"{name}.weight", len(weight))
    return torch.div(found, torch.linalg.vector_norm(weight, dim=1))


def _add_pooler(rest: Checkpoint, backbone: Backbone) -> None:
    """Puts the pooler among the tensors of `rest`, where it is the tanh layer of the head."""
    pooler = backbone.model.pooler if isinstance(backbone.model, Bert) else None
    if pooler is None:
        raise AdapterError(f"{rest.where}: LoRA adapts the pooler, which this backbone does not have")
    own = {} if f"{_POOLER}.bias" in rest else {f"{_POOLER}.bias": pooler.bias.cpu()}
    rest.put_back({f"{_POOLER}.weight": pooler.weights()[0].cpu().float(), **own})


def _merge_dense(rest: Checkpoint, module: str, own: Strength, backbone: Backbone) -> None:
    """Merges the LoRA of a layer of the head into the layer's weight among the tensors of `rest`."""
    hidden = backbone.config.hidden_size
    a = take_down(rest, f"{module}{_A}", hidden, own.rank)
    b = rest.take(f"{module}{_B}", hidden, len(a))
    weight = rest.take(f"{module}.weight", hidden, hidden) + own.scale * b @ a
    if rest.matches(rf"{re.escape(module + _MAGNITUDE)}.*"):
        weight = weight * _magnitude(rest, module, weight)[:, None]
    rest.put_back({f"{module}.weight": weight})


def _ia3(targets: Targets, checkpoint: Checkpoint, backbone: Backbone) -> Read:
    """Factors [out, 1] are of a map's outputs, [1, in] of its inputs."""
    targets.config.ignore("feedforward_modules", "fan_in_fan_out", "init_ia3_weights")
    inner = checkpoint.renamed(lambda name: name.removeprefix(_WRAPPER))
    adapted = [match[1] for match in inner.matches(rf"(.*){re.escape(_FACTORS)}")]
    rest, found = inner.renamed(base_names), dict[ModuleSite, Factors]()
    for name in adapted:
        module = _base_module(name)
        place = find_lora_module("IA3", module, rest, backbone.config)
        factors = rest.take(f"{module}{_FACTORS}", None, None)
        if 1 not in factors.shape:
            raise AdapterError(
                f"{rest.where}: tensor {module + _FACTORS!r} has shape {list(factors.shape)}; it must be [any, 1] or "
                "[1, any]"
            )
        found[place] = Factors(factors.flatten(), of_input=len(factors) == 1)
        targets.check_side(rest, name, of_input=len(factors) == 1)
    targets.check(rest, "IA3 of", adapted)
    targets.check_rest(rest, adapted)
    return [create_scale(found, backbone.config)] if found else [], rest


def _vera(targets: Targets, checkpoint: Checkpoint, backbone: Backbone) -> Read:
    """The LoRA that VeRA is: y + b * (B (d * (A x))), with parts of two matrices A [r, in] and B [out, r] that all maps
    share (Kopiczko et al. 2024, Eq. 2)."""
    config = targets.config
    config.only("bias", "none", "all", "vera_only")
    config.ignore("r", "vera_dropout", "d_initial", "fan_in_fan_out", "projection_prng_key", "save_projection")
    shared = [f"base_model.vera_{name}" for name in "AB"]
    if any(name not in checkpoint for name in shared):
        raise AdapterError(
            f"{checkpoint.where} has no {' or '.join(shared)}; save the adapter with save_projection=True"
        )
    rank = config.count("r")
    a, b = checkpoint.take(shared[0], rank, None), checkpoint.take(shared[1], None, rank)
    adapted, rest = _unwrap(checkpoint, rf"(.*){re.escape(_LAMBDA)}[bd]")
    pairs: dict[ModuleSite, LoraPair] = {}
    for match in rest.matches(rf"(.*){re.escape(_LAMBDA)}b"):
        place = find_lora_module("VeRA", match[1], rest, backbone.config)
        before, after = map_shape(place[0], backbone.config)
        own = after // num_sharing(match[1], backbone.config)
        if a.shape[1] < before or len(b) < own:
            raise AdapterError(
                f"{rest.where}: {shared[0]!r} has {a.shape[1]} columns and {shared[1]!r} {len(b)} rows; {match[1]!r} "
                f"needs {before} and {own}"
            )
        outer, inner = rest.take(match[0], after), rest.take(f"{match[1]}{_LAMBDA}d", rank)
        up = repeat_heads(match[1], b[:own], backbone.config)
        pairs[place] = LoraPair(a[:, :before], outer[:, None] * up * inner)
    targets.check(rest, "VeRA of", adapted)
    targets.check_rest(rest, adapted)
    return [create_lora(pairs, backbone.config)] if pairs else [], rest


def _norms(targets: Targets, checkpoint: Checkpoint, backbone: Backbone) -> Read:
    """No part, because `read_peft` takes the norms of every type."""
    inner = checkpoint.renamed(lambda name: name.removeprefix(_WRAPPER))
    adapted = {match[1] for match in inner.matches(r"(.*)\.ln_tuning_layers\.weight")}
    targets.check(inner, "LayerNorm of", adapted)
    rest = inner.renamed(lambda name: base_names(name.replace(".ln_tuning_layers.", ".")))
    targets.check_rest(rest, ())
    return [], rest


def _prompt(targets: Targets, checkpoint: Checkpoint, backbone: Backbone) -> Read:
    """On a T5 the table has a second half for the decoder, which PEFT does not use (docs/methods.md#peft)."""
    config = targets.config
    length, parts = config.count("num_virtual_tokens"), config.get("num_transformer_submodules", 2)
    config.only("num_transformer_submodules", 2, 1)
    config.ignore("num_attention_heads", "num_layers", "token_dim")
    config.ignore("prompt_tuning_init", "prompt_tuning_init_text", "tokenizer_name_or_path", "tokenizer_kwargs")
    table = checkpoint.take("prompt_embeddings", None, backbone.config.hidden_size)
    if len(table) != parts * length:
        raise AdapterError(
            f"{checkpoint.where}: the prompt has {len(table)} rows; {config.where} says {parts} times {length}"
        )
    rest = checkpoint.renamed(base_names)
    targets.check_rest(rest, ())
    return [create_prompt(table[:length], backbone.config)], rest


def _prefix(targets: Targets, checkpoint: Checkpoint, backbone: Backbone) -> Read:
    """A saved prefix needs no MLP (`prefix_projection`): PEFT evaluates it before it saves."""
    config = targets.config
    if backbone.config.generates:
        raise AdapterError(
            f"{config.where}: PEFT's prefix on a T5 acts only on the decoder's self-attention, with its own order of "
            "layers; only prefixes of every attention are supported"
        )
    length = config.count("num_virtual_tokens")
    config.only("num_transformer_submodules", 1, None)
    config.ignore("num_attention_heads", "num_layers", "token_dim", "encoder_hidden_size", "prefix_projection")
    if backbone.config.max_tokens - length < _MIN_MAX_LENGTH:
        raise AdapterError(
            f"{config.where}: num_virtual_tokens is {length}; PEFT counts them among the {backbone.config.max_tokens} "
            f"positions of this backbone, which leaves fewer than {_MIN_MAX_LENGTH} for the text"
        )
    flat = checkpoint.take("prompt_embeddings", length, prefix_width(backbone.config))
    prefixes = unfold_prefix(flat, backbone.config)
    piece = create_prefix(prefixes, backbone.config, shifts_positions=True)
    rest = checkpoint.renamed(base_names)
    targets.check_rest(rest, ())
    return [piece], rest


_READERS: dict[str, Callable[[Targets, Checkpoint, Backbone], Read]] = {
    "LORA": _read_lora,
    "PREFIX_TUNING": _prefix,
    "PROMPT_TUNING": _prompt,
    "LN_TUNING": _norms,
    "IA3": _ia3,
    "VERA": _vera,
}
