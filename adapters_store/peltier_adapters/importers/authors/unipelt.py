"""Reads checkpoints of the UniPELT authors' code (docs/methods.md#authors): prefix, LoRA and adapter of a BERT, alone
or combined, each with or without a gate."""

from pathlib import Path

from peltier_backbone.backbone import Backbone

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.authors.authors import read_model, read_settings
from peltier_adapters.importers.authors.frozen import finish_frozen
from peltier_adapters.importers.authors.unipelt_adapter import find_task, take_adapter, used
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.config_file import ConfigFile
from peltier_adapters.importers.shared.gate import take_gate
from peltier_adapters.importers.shared.head import take_head
from peltier_adapters.importers.shared.imported_adapter import ImportedAdapter
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.importers.shared.lora import LoraPair, create_lora, lora_modules
from peltier_adapters.importers.shared.module_sites import ModuleSite, base_names, find_sites
from peltier_adapters.importers.shared.prefix import KeysValues, create_prefix, evaluate_prefix, unfold_prefix

_ALPHA = 16.0  # the scripts' default; a gate replaces it


def read_unipelt(path: Path, backbone: Backbone) -> ImportedAdapter:
    """The parts of the checkpoint, and its classifier; raises `AdapterError` for what is not supported."""
    config, checkpoint = read_settings(path), read_model(path).renamed(base_names)
    if backbone.config.family != "bert":
        raise AdapterError(
            f"{path} is a checkpoint of the UniPELT authors' code, which is for BERT; "
            f"this backbone is {backbone.config.family}"
        )
    config.only("add_central_gate", False)
    task = find_task(checkpoint)
    pieces = [
        *_prefix(config, checkpoint, backbone),
        *_lora(config, checkpoint, backbone),
        *([] if task is None else [take_adapter(config, checkpoint, backbone, task)]),
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
        gate = used(take_gate(checkpoint, f"{module}.prefix_gate", hidden), config, "add_prefix_gate")
        prefixes[index] = KeysValues(prefix.keys, prefix.values, gate)
    return [create_prefix(prefixes, backbone.config)]


def _lora(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone) -> list[ImportedPart]:
    alpha, hidden = config.number("lora_alpha", _ALPHA), backbone.config.hidden_size
    pairs: dict[ModuleSite, LoraPair] = {}
    for module, place in lora_modules(backbone.config).items():
        a = checkpoint.take_if(f"{module}.lora_A", None, hidden)
        if a is not None:
            b = checkpoint.take(f"{module}.lora_B", hidden, len(a))
            gate = used(take_gate(checkpoint, f"{module}.lora_gate", hidden), config, "add_lora_gate")
            pairs[place] = LoraPair(a, b, alpha / len(a), gate)
    return [create_lora(pairs, backbone.config)] if pairs else []
