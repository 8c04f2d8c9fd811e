"""Reads checkpoints of the UniPELT authors' code (docs/methods.md#authors): prefix, LoRA and adapter of a BERT, alone
or combined, each with or without a gate. Adapters are after the feed-forward block, on the normed residual sum, with
relu."""

import re
from pathlib import Path
from typing import Any

from peltier_backbone.backbone import Backbone

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.authors.authors import finish_frozen, only_task, read_model, read_settings
from peltier_adapters.importers.shared.bottleneck import Bottleneck, Kind, create_bottleneck, take_maps
from peltier_adapters.importers.shared.checkpoint import Checkpoint, ConfigFile
from peltier_adapters.importers.shared.head import take_head
from peltier_adapters.importers.shared.imported import ImportedAdapter, ImportedGate, ImportedPart, take_gate
from peltier_adapters.importers.shared.lora import LoraPair, create_lora, lora_modules
from peltier_adapters.importers.shared.module_sites import ModuleSite, base_names, find_sites
from peltier_adapters.importers.shared.prefix import KeysValues, create_prefix, evaluate_prefix, unfold_prefix

_ALPHA = 16.0  # the scripts' default; a gate replaces it
_ADAPTER = r".*\.adapters\.([^.]+)\..*"
_ELSEWHERE = r"(?!encoder\.layer\.\d+\.output\.).*\.adapters\..*"
_PFEIFFER = "pfeiffer"
_WITHOUT_EFFECT = (
    "mh_adapter", "output_adapter", "reduction_factor", "leave_out", "adapter_residual_before_ln",
    "inv_adapter_reduction_factor",
)  # fmt: skip


def read_unipelt(path: Path, backbone: Backbone) -> ImportedAdapter:
    """The parts of the checkpoint, and its classifier; raises `AdapterError` for what is not supported."""
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
    head = _head(checkpoint, backbone)
    finish_frozen(checkpoint, backbone)
    gated = any(getattr(piece.spec, "gated", False) for piece in pieces)
    method = "unipelt" if len(pieces) > 1 else f"unipelt-{pieces[0].spec.kind}"
    origin = {"library": "morningmoni/UniPELT", "name": task or ""}
    return ImportedAdapter(method, pieces, head, origin=origin, padded=gated)


def _head(checkpoint: Checkpoint, backbone: Backbone) -> ImportedPart | None:
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
    alpha, hidden = config.number("lora_alpha", _ALPHA), backbone.config.hidden_size
    pairs: dict[ModuleSite, LoraPair] = {}
    for module, place in lora_modules(backbone.config).items():
        a = checkpoint.take_if(f"{module}.lora_A", None, hidden)
        if a is not None:
            b = checkpoint.take(f"{module}.lora_B", hidden, len(a))
            gate = _used(take_gate(checkpoint, f"{module}.lora_gate", hidden), config, "add_lora_gate")
            pairs[place] = LoraPair(a, b, alpha / len(a), gate)
    return [create_lora(pairs, backbone.config)] if pairs else []


def _find_task(checkpoint: Checkpoint) -> str | None:
    """The task of the checkpoint's adapters; None if it has none."""
    return only_task(checkpoint, _ADAPTER)


def _take_adapter(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, task: str) -> ImportedPart:
    """The part; raises `AdapterError` for adapters at other places or of another kind."""
    elsewhere = checkpoint.matches(_ELSEWHERE)
    if elsewhere:
        raise AdapterError(
            f"{checkpoint.where}: {elsewhere[0][0]!r} belongs to an adapter at another place; only "
            "adapters after the feed-forward blocks are supported"
        )
    _check_adapter(config, task)
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
    return create_bottleneck(found, Kind("relu", "normed"), backbone.config)


def _used(gate: ImportedGate | None, config: ConfigFile, flag: str) -> ImportedGate | None:
    """The gate if its flag is on, which is the default. If the flag is set, the gate must exist."""
    if gate is None and config.get(flag, False):
        raise AdapterError(f"{config.where}: {flag} is true, but the checkpoint has no such gate")
    return gate if config.get(flag, True) else None


def _check_adapter(config: ConfigFile, task: str) -> None:
    """Checks the adapter's settings, which the model's configuration contains under a name or a hash."""
    saved = _object(config.get("adapters"))
    name = str(_object(saved.get("adapters")).get(task, _PFEIFFER))
    settings = _object(saved.get("config_map")).get(name, {} if name == _PFEIFFER else None)
    if not isinstance(settings, dict):
        if settings == _PFEIFFER:
            return
        raise AdapterError(f"{config.where}: the adapter of task {task!r} is {name!r}; only {_PFEIFFER!r} is supported")
    own = ConfigFile(settings, f"{config.where}: config_map")
    own.only("non_linearity", "relu")
    for key in ("original_ln_before", "original_ln_after", "residual_before_ln"):
        own.only(key, True)
    for key in ("ln_before", "ln_after", "cross_adapter"):
        own.only(key, False)
    own.only("inv_adapter", None)
    own.ignore(*_WITHOUT_EFFECT)
    own.finish()


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
