"""Checkpoints of the UniPELT authors' code (methods.md 7.1): prefix, LoRA and adapter of a BERT, alone or together,
each with a gate or without."""

import re
from pathlib import Path

import torch
from peltier_backbone.load import Backbone

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.authors import only_task, read_model, read_settings
from peltier_adapters.importers.bottleneck import Bottleneck, Kind, create_bottleneck, take_map
from peltier_adapters.importers.checkpoint import Checkpoint
from peltier_adapters.importers.config_file import ConfigFile
from peltier_adapters.importers.foreign import Foreign
from peltier_adapters.importers.frozen import finish_frozen
from peltier_adapters.importers.head import take_dense, take_head
from peltier_adapters.importers.lora import LoraPair, create_lora
from peltier_adapters.importers.piece import Gate, Piece
from peltier_adapters.importers.places import Place, base_names, find_places
from peltier_adapters.importers.prefix import KeysValues, create_prefix, unfold_prefix

_ADAPTER = r"encoder\.layer\.\d+\.output\.adapters\.([^.]+)\..*"
_ALPHA = 16.0  # the scripts' default; a gate replaces it


def read_unipelt(path: Path, backbone: Backbone) -> Foreign:
    """The parts that the checkpoint holds, and its classifier; an `AdapterError` says what is not served."""
    config, checkpoint = read_settings(path), read_model(path).renamed(base_names)
    if backbone.config.family != "bert":
        raise AdapterError(
            f"{path} is of the UniPELT authors' code, which is for BERT; this is {backbone.config.family}"
        )
    config.only("add_central_gate", False)
    task = only_task(checkpoint, _ADAPTER)
    pieces = [
        *_prefix(config, checkpoint, backbone),
        *_lora(config, checkpoint, backbone),
        *_adapter(config, checkpoint, backbone, task),
    ]
    if not pieces:
        raise AdapterError(f"{path} holds no prefix, LoRA or adapter of the UniPELT authors' code")
    _drop_dead_gates(checkpoint)
    head = _head(checkpoint, backbone)
    finish_frozen(checkpoint, backbone)
    gated = any(getattr(piece.spec, "gated", False) for piece in pieces)
    method = "unipelt" if len(pieces) > 1 else f"unipelt-{pieces[0].spec.kind}"
    origin = {"library": "morningmoni/UniPELT", "name": task or ""}
    return Foreign(method, pieces, head, origin=origin, padded=gated)


def _head(checkpoint: Checkpoint, backbone: Backbone) -> Piece | None:
    """The classifier; a pooler beside it is the backbone's, which is looked at later."""
    pooler = [f"pooler.dense.{name}" for name in ("weight", "bias")]
    frozen = {name: checkpoint.take(name) for name in pooler if name in checkpoint}
    head = take_head(checkpoint, backbone.config)
    checkpoint.put_back(frozen)
    return head


def _drop_dead_gates(checkpoint: Checkpoint) -> None:
    """A gate of the prefix is saved even where there is no prefix."""
    checkpoint.skip(r"encoder\.layer\.\d+\.attention\.self\.prefix_gate\..*")


def _gate(config: ConfigFile, checkpoint: Checkpoint, flag: str, name: str) -> Gate | None:
    """The gate `name`, which is used where its flag says so, or there is none."""
    if f"{name}.weight" not in checkpoint:
        return None
    weight, bias = checkpoint.take(f"{name}.weight", 1, None)[0], checkpoint.take(f"{name}.bias", 1)[0]
    return Gate(weight, bias) if config.get(flag, True) else None


def _prefix(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone) -> list[Piece]:
    table = checkpoint.take_if("encoder.prefix_enc_embed.weight", None, backbone.config.hidden_size)
    if table is None:
        return []
    width = 2 * backbone.config.num_attentions * backbone.config.attention_size
    inner = take_dense(checkpoint, "encoder.prefix_embed_MLP.0", None, backbone.config.hidden_size)
    outer = take_dense(checkpoint, "encoder.prefix_embed_MLP.2", width, len(inner.weight))
    flat = torch.tanh(table @ inner.weight.T + inner.bias) @ outer.weight.T + outer.bias
    prefixes = {}
    for module, index in find_places(backbone.config).attentions.items():
        one = unfold_prefix(flat, backbone.config)[index]
        gate = _gate(config, checkpoint, "add_prefix_gate", f"{module}.prefix_gate")
        prefixes[index] = KeysValues(one.keys, one.values, gate)
    return [create_prefix(prefixes, backbone.config)]


def _lora(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone) -> list[Piece]:
    alpha, hidden = config.number("lora_alpha", _ALPHA), backbone.config.hidden_size
    pairs: dict[Place, LoraPair] = {}
    for module, place in find_places(backbone.config).projections.items():
        a = checkpoint.take_if(f"{module}.lora_A", None, hidden)
        if a is not None:
            b = checkpoint.take(f"{module}.lora_B", hidden, len(a))
            gate = _gate(config, checkpoint, "add_lora_gate", f"{module}.lora_gate")
            pairs[place] = LoraPair(a, b, alpha / len(a), gate)
    return [create_lora(pairs, backbone.config)] if pairs else []


def _adapter(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, task: str | None) -> list[Piece]:
    found: dict[Place, Bottleneck] = {}
    for module, place in find_places(backbone.config).sublayers.items():
        name = f"{module}.adapters.{task}"
        if task is not None and checkpoint.matches(rf"{re.escape(name)}\..*"):
            down, up = (take_map(checkpoint, f"{name}.{side}") for side in ("adapter_down.0", "adapter_up"))
            found[place] = Bottleneck(down, up, _gate(config, checkpoint, "add_adapter_gate", f"{name}.gate"))
    return [create_bottleneck(found, Kind("relu", "normed"), backbone.config)] if found else []
