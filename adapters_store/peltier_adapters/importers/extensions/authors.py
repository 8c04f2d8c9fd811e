"""Checkpoints of the authors' code (docs/methods.md#authors): every method of the Compacter paper's tables but SAID, on
T5; prefix, LoRA and adapter of UniPELT, alone or combined, on BERT; AdaMix, whose experts are merged, on BERT and
RoBERTa.

A checkpoint is of the whole model, with its configuration beside it. The frozen weights in it must be those of the
backbone."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.bert import Bert
from peltier_backbone.bert.weights import bert_weights, build_bert, canonical_bert
from peltier_backbone.checkpoint.bert_config import BertConfig
from peltier_backbone.checkpoint.t5_config import T5Config
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.errors import BackboneError
from peltier_backbone.linear.linear import PlainLinear
from peltier_backbone.t5.weights import build_t5, canonical_t5, t5_weights
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.extensions.bottleneck import Bottleneck, Kind, create_bottleneck, take_maps, take_rule
from peltier_adapters.importers.shared.checkpoint import Checkpoint, ConfigFile, find_file, read_checkpoint, read_config
from peltier_adapters.importers.shared.head import take_head
from peltier_adapters.importers.shared.imported import ImportedAdapter, ImportedGate, ImportedPart, take_gate
from peltier_adapters.importers.shared.module_sites import ModuleSite, base_names, find_sites
from peltier_adapters.importers.shared.parts import (
    KeysValues,
    LoraPair,
    create_lora,
    create_prefix,
    create_prompt,
    evaluate_prefix,
    lora_modules,
    take_biases,
    take_down,
    take_norms,
    unfold_prefix,
)
from peltier_adapters.parts.norm import backbone_norms
from peltier_adapters.spec.parts import BottleneckActivation, NormSpec

_WEIGHTS = ("pytorch_model.bin", "model.safetensors")
# float32 weights are saved exactly; a backbone published in half precision is rounded once.
_TOLERANCE = 1e-6
_COMPACTER_TASK = r".*\.adapter_controller\.adapters\.([^.]+)\..*"
# The checkpoint does not name it. Every configuration that the authors published has this one.
_ACTIVATION: BottleneckActivation = "gelu_new"
_UNIPELT_ALPHA = 16.0  # the scripts' default; a gate replaces it
_UNIPELT_TASK = r".*\.adapters\.([^.]+)\..*"
_ELSEWHERE = r"(?!encoder\.layer\.\d+\.output\.).*\.adapters\..*"
_PFEIFFER = "pfeiffer"
_WITHOUT_EFFECT = ("adapter_residual_before_ln", "inv_adapter_reduction_factor")
_UNIPELT_SITES = ("query", "value")
_ADAMIX_FILES = ("pytorch_model_expert_soup.bin",)


def read_model(path: Path) -> Checkpoint:
    """The tensors of the checkpoint at `path`, a file or a directory."""
    return read_checkpoint(find_file(path, _WEIGHTS))


def read_settings(path: Path) -> ConfigFile:
    """`config.json` beside the weights; without one every setting is absent."""
    file = (path.parent if path.is_file() else path) / "config.json"
    return read_config(file) if file.is_file() else ConfigFile({}, path)


def only_task(checkpoint: Checkpoint, pattern: str) -> str | None:
    """The task in the first group of the names that match `pattern`; None if no name matches."""
    tasks = sorted({match[1] for match in checkpoint.matches(pattern)})
    if len(tasks) > 1:
        raise AdapterError(
            f"{checkpoint.where} holds adapters of {len(tasks)} tasks: {', '.join(tasks)}; an artifact has one"
        )
    return tasks[0] if tasks else None


def finish_frozen(rest: Checkpoint, backbone: Backbone) -> None:
    """Takes the tensors left in `rest`, which must be none or all of `backbone`, except norms already taken."""
    rest.skip(r".*embeddings\.position_ids")
    tensors = {name: rest.take(name) for name in rest}
    if not tensors:
        return
    try:
        pairs = _pairs(tensors, backbone, Path(rest.where))
    except BackboneError as error:
        raise AdapterError(
            f"{error}; the checkpoint must contain either only an adapter, or also the whole backbone"
        ) from None
    for name, own, found in pairs:
        if own.shape != found.shape or not torch.allclose(own.cpu().float(), found, rtol=0, atol=_TOLERANCE):
            raise AdapterError(
                f"{rest.where}: the frozen weights {name!r} differ from those of backbone {backbone.name!r}; an "
                "adapter needs the backbone that it was trained on, with unchanged weights"
            )


def _pairs(tensors: dict[str, Tensor], backbone: Backbone, where: Path) -> list[tuple[str, Tensor, Tensor]]:
    """Name, own and found weights; BERT's pooler is compared where both have one."""
    config = backbone.config
    if isinstance(config, T5Config):
        whole = _with_own_norms(canonical_t5(tensors, config, where), backbone)
        found = t5_weights(build_t5(config, Weights(whole, where), PlainLinear))
        own = t5_weights(backbone.t5)
    else:
        assert isinstance(config, BertConfig)
        found = bert_weights(build_bert(config, Weights(canonical_bert(tensors, config, where), where), PlainLinear))
        assert isinstance(backbone.model, Bert), "it has this configuration"
        own = bert_weights(backbone.model)
    theirs = dict(found)
    return [(name, tensor, theirs[name]) for name, tensor in own if name in theirs]


def _with_own_norms(tensors: dict[str, Tensor], backbone: Backbone) -> dict[str, Tensor]:
    norms = backbone.model.norms()
    own = {f"{module}.weight": norms[index].weight for module, index in find_sites(backbone.config).norms.items()}
    return own | tensors


def read_compacter(path: Path, backbone: Backbone) -> ImportedAdapter:
    """The adapter, prompt or biases, and the trained norms; raises `AdapterError` for what is not supported."""
    checkpoint = read_model(path)
    if not backbone.config.generates:
        raise AdapterError(
            f"{path} is a checkpoint of the Compacter authors' code, which is for T5; "
            f"this backbone is {backbone.config.family}"
        )
    if checkpoint.matches(r"intrinsic_parameter.*"):
        raise AdapterError(
            f"{path} is an Intrinsic-SAID checkpoint: it does not contain its random projections, so it cannot "
            "be loaded; save the tuned weights instead"
        )
    task = only_task(checkpoint, _COMPACTER_TASK)
    _check_trained(checkpoint, backbone, has_adapters=task is not None)
    pieces = [*_prompt(checkpoint, backbone), *_bottlenecks(checkpoint, backbone, task)]
    places = find_sites(backbone.config)
    pieces += take_biases(checkpoint, places, backbone) + _trained(take_norms(checkpoint, places, backbone), backbone)
    finish_frozen(checkpoint, backbone)
    if not pieces:
        raise AdapterError(f"{path} has no adapter, prompt or bias of the Compacter authors' code")
    method = pieces[0].spec.kind if task is None else _compacter_method(pieces[0])
    return ImportedAdapter(f"compacter-{method}", pieces, origin={"library": "rabeehk/compacter", "name": task or ""})


def _check_trained(checkpoint: Checkpoint, backbone: Backbone, *, has_adapters: bool) -> None:
    """Refuses a checkpoint with some of the norms, which are trained with adapters, or with some of BitFit's biases."""
    places = find_sites(backbone.config)
    norms = [f"{module}.weight" for module in places.norms]
    biases = [f"{module}.bias" for module in places.projections]
    biases += [f"{module}.bias" for module in places.norms if not module.endswith("final_layer_norm")]
    for what, promised, needed in (("norm", norms, has_adapters), ("bias", biases, False)):
        found = [name for name in promised if name in checkpoint]
        if found or needed:
            checkpoint.check_promise(what, promised, found, "a checkpoint of the authors' code")


def _check_places(
    checkpoint: Checkpoint, found: Mapping[ModuleSite, Bottleneck], backbone: Backbone, *, first: int = 0
) -> None:
    """Refuses adapters of several sizes, and sites that have adapters in some of the blocks from `first` on only."""
    sizes = {len(adapter.down["bias"]) for adapter in found.values()}
    if len(sizes) > 1:
        raise AdapterError(f"{checkpoint.where} has adapters of the sizes {sorted(sizes)}; the authors' have one size")
    sites, sublayers = {site for site, _ in found}, find_sites(backbone.config).sublayers
    promised = [
        module
        for module, (site, block) in sublayers.items()
        if site in sites and backbone.config.place_block(block) >= first
    ]
    own = [module for module, place in sublayers.items() if place in found]
    checkpoint.check_promise(
        "adapter in", promised, own, f"the authors' code, with its adapters from block {first} on,"
    )


def _bottlenecks(checkpoint: Checkpoint, backbone: Backbone, task: str | None) -> list[ImportedPart]:
    if task is None:
        return []
    rule = take_rule(checkpoint, "phm_rule")
    found: dict[ModuleSite, Bottleneck] = {}
    for module, place in find_sites(backbone.config).sublayers.items():
        name = f"{module}.adapter_controller.adapters.{task}"
        if checkpoint.matches(rf"{re.escape(name)}\..*"):
            sides = (f"{name}.down_sampler", f"{name}.up_sampler")
            found[place] = Bottleneck(*take_maps(checkpoint, *sides, backbone.config.hidden_size, rule))
    if not found:
        raise AdapterError(f"{checkpoint.where} has adapters of task {task!r} at no block of this backbone")
    # AdapterDrop has none in the first blocks of both stacks.
    first = min(backbone.config.place_block(block) for _, block in found)
    _check_places(checkpoint, found, backbone, first=first)
    return [create_bottleneck(found, Kind(_ACTIVATION, rule=rule), backbone.config)]


def _prompt(checkpoint: Checkpoint, backbone: Backbone) -> list[ImportedPart]:
    """The prompt. The checkpoint has a copy for each stack, but the decoder does not use it."""
    table = checkpoint.take_if("prefix_shared", None, backbone.config.hidden_size)
    for stack in ("encoder", "decoder"):
        alias = checkpoint.take_if(f"{stack}.prefix_emb")
        if alias is not None and (table is None or not torch.equal(alias, table)):
            raise AdapterError(f"{checkpoint.where}: tensor '{stack}.prefix_emb' is not the shared prompt")
    return [] if table is None else [create_prompt(table, backbone.config)]


def _trained(norms: list[ImportedPart], backbone: Backbone) -> list[ImportedPart]:
    """Norms that differ from the backbone's; prompts and biases are trained with frozen norms."""
    kept: dict[str, Tensor] = {}
    for piece in norms:
        for name, tensor in piece.tensors.items():
            own = backbone_norms(name, backbone, range(backbone.config.num_norms))
            if own is None or not torch.equal(tensor, own.cpu()):
                kept[name] = tensor
    return [ImportedPart(NormSpec(weight="weight" in kept, bias="bias" in kept), kept)] if kept else []


def _compacter_method(piece: ImportedPart) -> str:
    map_ = getattr(piece.spec, "map", None)
    return {"lphm": "compacter", "phm": "phm", "lowrank": "lowrank"}.get(getattr(map_, "kind", ""), "adapter")


def read_unipelt(path: Path, backbone: Backbone) -> ImportedAdapter:
    """The parts of the checkpoint, each with or without a gate, and its classifier. Adapters are after the feed-forward
    block, on the normed residual sum, with relu. Raises `AdapterError` for what is not supported."""
    config, checkpoint = read_settings(path), read_model(path).renamed(base_names)
    if backbone.config.family != "bert":
        raise AdapterError(
            f"{path} is a checkpoint of the UniPELT authors' code, which is for BERT; "
            f"this backbone is {backbone.config.family}"
        )
    config.only("add_central_gate", False)
    task = _find_task(checkpoint)
    pieces = [
        *_prefix(config, checkpoint, backbone),
        *_lora(config, checkpoint, backbone),
        *([] if task is None else [_take_adapter(config, checkpoint, backbone, task)]),
    ]
    if not pieces:
        raise AdapterError(f"{path} has no prefix, LoRA or adapter of the UniPELT authors' code")
    _skip_unused_gates(checkpoint)
    head = _unipelt_head(checkpoint, backbone)
    finish_frozen(checkpoint, backbone)
    gated = any(getattr(piece.spec, "gated", False) for piece in pieces)
    method = "unipelt" if len(pieces) > 1 else f"unipelt-{pieces[0].spec.kind}"
    origin = {"library": "morningmoni/UniPELT", "name": task or ""}
    return ImportedAdapter(method, pieces, head, origin=origin, padded=gated)


def _unipelt_head(checkpoint: Checkpoint, backbone: Backbone) -> ImportedPart | None:
    """The classifier. A pooler in the checkpoint is the backbone's, which is checked later."""
    pooler = [f"pooler.dense.{name}" for name in ("weight", "bias")]
    frozen = {name: checkpoint.take(name) for name in pooler if name in checkpoint}
    head = take_head(checkpoint, backbone.config)
    checkpoint.put_back(frozen)
    return head


def _skip_unused_gates(checkpoint: Checkpoint) -> None:
    """The checkpoint has gates of the prefix even without a prefix."""
    checkpoint.skip(r"encoder\.layer\.\d+\.attention\.self\.prefix_gate\..*")


def _prefix(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone) -> list[ImportedPart]:
    hidden = backbone.config.hidden_size
    table = checkpoint.take_if("encoder.prefix_enc_embed.weight", None, hidden)
    if table is None:
        return []
    config.only("drop_first_prefix_layers_enc", [])
    flat = evaluate_prefix(table, checkpoint, "encoder.prefix_embed_MLP", backbone.config)
    ungated, prefixes = unfold_prefix(flat, backbone.config), {}
    for module, index in find_sites(backbone.config).attentions.items():
        prefix = ungated[index]
        gate = _used(take_gate(checkpoint, f"{module}.prefix_gate", hidden), config, "add_prefix_gate")
        prefixes[index] = KeysValues(prefix.keys, prefix.values, gate)
    return [create_prefix(prefixes, backbone.config)]


def _lora(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone) -> list[ImportedPart]:
    alpha, hidden = config.number("lora_alpha", _UNIPELT_ALPHA), backbone.config.hidden_size
    modules = {module: place for module, place in lora_modules(backbone.config).items() if place[0] in _UNIPELT_SITES}
    found = {match[1] for match in checkpoint.matches(r"(.*)\.lora_[AB]")}
    if not found:
        return []
    checkpoint.check_promise("LoRA of", modules, found, "a checkpoint of the authors' code")
    rank = None if config.get("lora_r") is None else config.count("lora_r")
    pairs: dict[ModuleSite, LoraPair] = {}
    for module, place in modules.items():
        a = take_down(checkpoint, f"{module}.lora_A", hidden, rank)
        rank = len(a)
        b = checkpoint.take(f"{module}.lora_B", hidden, rank)
        gate = _used(take_gate(checkpoint, f"{module}.lora_gate", hidden), config, "add_lora_gate")
        pairs[place] = LoraPair(a, b, alpha / rank, gate)
    return [create_lora(pairs, backbone.config)]


def _find_task(checkpoint: Checkpoint) -> str | None:
    return only_task(checkpoint, _UNIPELT_TASK)


def _take_adapter(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, task: str) -> ImportedPart:
    """The part; raises `AdapterError` for adapters at other places or of another kind."""
    elsewhere = checkpoint.matches(_ELSEWHERE)
    if elsewhere:
        raise AdapterError(
            f"{checkpoint.where}: {elsewhere[0][0]!r} belongs to an adapter at another place; only "
            "adapters after the feed-forward blocks are supported"
        )
    own = _adapter_settings(config, task)
    found: dict[ModuleSite, Bottleneck] = {}
    hidden = backbone.config.hidden_size
    for module, place in find_sites(backbone.config).sublayers.items():
        name = f"{module}.adapters.{task}"
        if checkpoint.matches(rf"{re.escape(name)}\..*"):
            down, up = take_maps(checkpoint, f"{name}.adapter_down.0", f"{name}.adapter_up", hidden)
            gate = _used(take_gate(checkpoint, f"{name}.gate", hidden), config, "add_adapter_gate")
            found[place] = Bottleneck(down, up, gate)
    if not found:
        raise AdapterError(f"{checkpoint.where} has adapters of task {task!r} at no layer of this backbone")
    _check_places(checkpoint, found, backbone)
    _check_size(own, found, backbone)
    return create_bottleneck(found, Kind("relu", "normed"), backbone.config)


def _used(gate: ImportedGate | None, config: ConfigFile, flag: str) -> ImportedGate | None:
    """The gate if its flag is on, which is the default; then the gate must exist."""
    if gate is None and config.get(flag, True):
        raise AdapterError(f"{config.where}: {flag} is true or absent, but the checkpoint has no such gate")
    return gate if config.get(flag, True) else None


def _check_size(own: ConfigFile, found: Mapping[ModuleSite, Bottleneck], backbone: Backbone) -> None:
    """Refuses adapters of another size than their settings say, if they say it."""
    if own.get("reduction_factor") is None:
        return
    size = backbone.config.hidden_size // own.count("reduction_factor")
    if any(len(adapter.down["bias"]) != size for adapter in found.values()):
        raise AdapterError(
            f"{own.where}: reduction_factor promises adapters of the size {size}; the checkpoint's differ"
        )


def _adapter_settings(config: ConfigFile, task: str) -> ConfigFile:
    """The adapter's settings, which the model's configuration contains under a name or a hash; without them, none."""
    saved = _object(config.get("adapters"))
    name = str(_object(saved.get("adapters")).get(task, _PFEIFFER))
    settings = _object(saved.get("config_map")).get(name, {} if name == _PFEIFFER else None)
    if not isinstance(settings, dict):
        if settings == _PFEIFFER:
            return ConfigFile({}, config.where)
        raise AdapterError(f"{config.where}: the adapter of task {task!r} is {name!r}; only {_PFEIFFER!r} is supported")
    own = ConfigFile(settings, f"{config.where}: config_map")
    own.only("non_linearity", "relu")
    for key in ("original_ln_before", "original_ln_after", "residual_before_ln"):
        own.only(key, True)
    for key in ("ln_before", "ln_after", "cross_adapter"):
        own.only(key, False)
    own.only("mh_adapter", False)
    own.only("output_adapter", True)
    own.only("inv_adapter", None)
    own.only("leave_out", [])
    own.ignore("reduction_factor", *_WITHOUT_EFFECT)
    own.finish()
    return own


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def read_adamix(path: Path, backbone: Backbone) -> ImportedAdapter:
    """The mean of the experts as one bottleneck after the feed-forward block, and the classifier."""
    whole = read_checkpoint(find_file(path, _ADAMIX_FILES))
    if whole.matches(r"(module\.)?transformer\.h\..*"):
        raise AdapterError(f"{path} is a checkpoint of AdaMix for GPT-2; only those for BERT and RoBERTa are supported")
    if backbone.config.pre_norm:
        raise AdapterError(
            f"{path} is a checkpoint of AdaMix for BERT and RoBERTa; this backbone is {backbone.config.family}"
        )
    checkpoint = whole.renamed(base_names)
    found: dict[ModuleSite, Bottleneck] = {}
    experts: set[int] = set()
    hidden = backbone.config.hidden_size
    for module, place in find_sites(backbone.config).sublayers.items():
        name = f"{module}.ExpertSoup"
        if checkpoint.matches(rf"{re.escape(name)}\..*"):
            down = _merge(checkpoint, f"{name}.MoA_A", (None, hidden), experts)
            up = _merge(checkpoint, f"{name}.MoA_B", (hidden, len(down["bias"])), experts)
            found[place] = Bottleneck(down, up)
    if not found:
        raise AdapterError(f"{path} has no ExpertSoup at any layer of this backbone")
    _check_places(checkpoint, found, backbone)
    if len(experts - {1}) > 1:  # a projection that all experts share is one
        raise AdapterError(f"{path} has {min(experts - {1})} experts in one layer and {max(experts)} in another")
    head = take_head(checkpoint, backbone.config)
    checkpoint.finish()
    if head is not None and backbone.config.family == "roberta" and len(head.tensors["bias"]) == 1:
        raise AdapterError(f"{path} is a regression of AdaMix on RoBERTa, whose outputs the authors' code clips at 0")
    piece = create_bottleneck(found, Kind("gelu"), backbone.config)
    return ImportedAdapter("adamix", [piece], head, origin={"library": "microsoft/AdaMix", "experts": max(experts)})


def _merge(checkpoint: Checkpoint, name: str, shape: tuple[int | None, int], experts: set[int]) -> dict[str, Tensor]:
    """The experts of one projection, each of `shape` [out, in], weighted by the softmax of their scores. The
    weights are equal, because the scores are frozen zeros. A projection that all experts share stays as it is."""
    pattern = rf"{re.escape(name)}\.deepspeed_experts\.(\d+)\.weight"
    members = sorted(int(match[1]) for match in checkpoint.matches(pattern))
    if not members or members != list(range(len(members))):
        raise AdapterError(f"{checkpoint.where}: {name!r} has the experts {members}; they must count from 0")
    experts.add(len(members))
    shares = checkpoint.take(f"{name}.expert_score_weight", len(members)).softmax(0)
    weights: list[Tensor] = []
    for one in members:
        weights.append(checkpoint.take(f"{name}.deepspeed_experts.{one}.weight", *shape))
        shape = (len(weights[0]), shape[1])  # the others must have as many outputs as the first
    biases = [checkpoint.take(f"{name}.deepspeed_experts.{one}.bias", shape[0]) for one in members]
    merged = torch.einsum("e,eoi->io", shares, torch.stack(weights))
    return {"weight": merged, "bias": shares @ torch.stack(biases)}
