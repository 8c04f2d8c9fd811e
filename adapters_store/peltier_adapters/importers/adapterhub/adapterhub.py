"""Reads directories that AdapterHub's `adapters` saves (docs/methods.md#adapterhub): bottlenecks, Compacter, LoRA,
prefixes and unions of them, with heads. UniPELT is a union with gated members."""

import re
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from peltier_backbone.backbone import Backbone

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.adapterhub.bottleneck import read_bottleneck
from peltier_adapters.importers.adapterhub.head import read_head
from peltier_adapters.importers.adapterhub.lora import read_lora
from peltier_adapters.importers.adapterhub.prefix import read_prefix
from peltier_adapters.importers.shared.checkpoint import Checkpoint, find_file, read_checkpoint
from peltier_adapters.importers.shared.config_file import ConfigFile, read_config
from peltier_adapters.importers.shared.imported_adapter import ImportedAdapter
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.importers.shared.module_sites import base_names

_FILES = ("adapter.safetensors", "pytorch_adapter.bin")
_DESCRIPTION = ("model_class", "model_name", "type", "id", "config_id")
# Modules with a submodule for each adapter, by its name.
_CONTAINERS = "adapters|loras|prefix_tunings|prefix_gates|shared_parameters"
_WITHOUT_EFFECT = ("architecture", "leave_out", "init_weights_seed", "dropout", "dtype")

Reader = Callable[[ConfigFile, Checkpoint, Backbone, str], ImportedPart]
_READERS: dict[str, Reader] = {
    "bottleneck": read_bottleneck,
    "lora": read_lora,
    "prefix_tuning": read_prefix,
}
# In the order in which the parts act, as in Peltier's presets.
_ORDER = ("prefix_tuning", "lora", "bottleneck")


@dataclass(frozen=True)
class _Saved:
    """The outer settings of a saved adapter."""

    outer: ConfigFile
    name: str
    version: str


def read_adapterhub(path: Path, backbone: Backbone) -> ImportedAdapter:
    """The adapter in directory `path`; raises `AdapterError` for what is not supported."""
    saved = _read_outer(path, backbone)
    members = _members(saved)
    checkpoint = _named(read_checkpoint(find_file(path, _FILES)), saved.name)
    pieces = [_read(kind, members[kind], checkpoint, backbone, saved) for kind in _ORDER if kind in members]
    checkpoint.finish()
    gated = [piece for piece in pieces if getattr(piece.spec, "gated", False)]
    if gated and backbone.config.generates:
        raise AdapterError(
            f"{saved.outer.where}: AdapterHub's gates average over the whole answer, but during generation a T5 knows "
            "only its beginning; on a T5 only adapters without gates are supported"
        )
    head = read_head(path, saved.name, backbone)
    origin = {"library": "adapterhub", "version": saved.version, "name": saved.name}
    method = "unipelt" if len(gated) == len(pieces) > 1 else "-".join(members)
    return ImportedAdapter(f"adapterhub-{method}", pieces, head.piece, head.labels, head.task_type, origin)


def _read_outer(path: Path, backbone: Backbone) -> _Saved:
    outer, config = read_config(find_file(path, ("adapter_config.json",))), backbone.config
    for key, own in (("model_type", config.family), ("hidden_size", config.hidden_size)):
        found = outer.get(key, own)
        if found != own:
            raise AdapterError(f"{outer.where}: {key} is {found!r}; this backbone's is {own!r}")
    name = outer.get("name")
    if not isinstance(name, str):
        raise AdapterError(f"{outer.where}: name is {name!r}; it must be the adapter's name")
    version = str(outer.get("version", "unknown"))
    outer.ignore("config", *_DESCRIPTION)
    outer.finish()
    return _Saved(outer, name, version)


def _members(saved: _Saved) -> dict[str, ConfigFile]:
    """The configuration of each member of a union, or of a single adapter, by its architecture."""
    config = saved.outer.get("config")
    union = isinstance(config, dict) and config.get("architecture") == "union"
    raw = config.get("configs") if isinstance(config, dict) and union else [config]
    if not isinstance(raw, list) or not raw or not all(isinstance(member, dict) for member in raw):
        raise AdapterError(f"{saved.outer.where}: config is {reprlib.repr(config)}; it must be an adapter's settings")
    members: dict[str, ConfigFile] = {}
    for member in raw:
        kind = member.get("architecture") or "bottleneck"
        if kind == "prompt_tuning":
            raise AdapterError(
                f"{saved.outer.where}: AdapterHub adds a soft prompt after an encoder's embeddings, without positions "
                "or norm; soft prompts are supported only on a T5"
            )
        if not isinstance(kind, str) or kind not in _READERS or kind in members:
            twice = " twice" if kind in [*members] else ""
            raise AdapterError(
                f"{saved.outer.where}: architecture {kind!r} is not supported{twice}; it is one of "
                f"{', '.join(_READERS)}, or a union of them"
            )
        members[kind] = ConfigFile({**member, "version": saved.version}, saved.outer.where)
    return members


def _named(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """Names below the base model, with `T` for the adapter's name, without the copies of a prefix in each layer
    (docs/methods.md#adapterhub)."""
    checkpoint.skip(r".*\.prefix_tuning\.pool\..*")
    pattern = re.compile(rf"(^|\.)({_CONTAINERS})\.{re.escape(name)}\.")
    return checkpoint.renamed(lambda tensor_name: pattern.sub(r"\1\2.T.", base_names(tensor_name), count=1))


def _read(kind: str, config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, saved: _Saved) -> ImportedPart:
    config.ignore("version", *_WITHOUT_EFFECT)
    piece = _READERS[kind](config, checkpoint, backbone, saved.version)
    config.finish()
    return piece
