"""Checkpoints of the Compacter authors' code (docs/methods.md#authors): every method of the paper's tables but SAID, on
T5."""

import re
from pathlib import Path

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.authors.authors import finish_frozen, only_task, read_model
from peltier_adapters.importers.shared.bottleneck import Bottleneck, Kind, create_bottleneck, take_maps, take_rule
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.imported import ImportedAdapter, ImportedPart
from peltier_adapters.importers.shared.module_sites import ModuleSite, find_sites
from peltier_adapters.importers.shared.prefix import create_prompt
from peltier_adapters.importers.shared.replaced import take_biases, take_norms
from peltier_adapters.parts.norm import backbone_norms
from peltier_adapters.spec.parts import BottleneckActivation, NormSpec

_ADAPTER = r".*\.adapter_controller\.adapters\.([^.]+)\..*"
# The checkpoint does not name it. Every configuration that the authors published has this one.
_ACTIVATION: BottleneckActivation = "gelu_new"


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
    task = only_task(checkpoint, _ADAPTER)
    pieces = [*_prompt(checkpoint, backbone), *_bottlenecks(checkpoint, backbone, task)]
    places = find_sites(backbone.config)
    pieces += take_biases(checkpoint, places, backbone) + _trained(take_norms(checkpoint, places, backbone), backbone)
    finish_frozen(checkpoint, backbone)
    if not pieces:
        raise AdapterError(f"{path} has no adapter, prompt or bias of the Compacter authors' code")
    method = pieces[0].spec.kind if task is None else _method(pieces[0])
    return ImportedAdapter(f"compacter-{method}", pieces, origin={"library": "rabeehk/compacter", "name": task or ""})


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


def _method(piece: ImportedPart) -> str:
    map_ = getattr(piece.spec, "map", None)
    return {"lphm": "compacter", "phm": "phm", "lowrank": "lowrank"}.get(getattr(map_, "kind", ""), "adapter")
