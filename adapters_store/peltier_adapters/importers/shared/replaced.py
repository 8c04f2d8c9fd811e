"""Makes parts of trained norms and biases; untrained ones get the backbone's values."""

from collections.abc import Mapping
from typing import cast

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.imported import ImportedPart
from peltier_adapters.importers.shared.module_sites import ModuleSite, ModuleSites
from peltier_adapters.parts.bias import backbone_bias
from peltier_adapters.parts.norm import backbone_norms
from peltier_adapters.spec.parts import BiasSite, BiasSpec, NormSpec


def take_norms(checkpoint: Checkpoint, places: ModuleSites, backbone: Backbone) -> list[ImportedPart]:
    """The part of the norm weights and biases in `checkpoint`, if there are any."""
    found: dict[str, dict[int, Tensor]] = {"weight": {}, "bias": {}}
    for module, index in places.norms.items():
        for name, tensors in found.items():
            tensor = checkpoint.take_if(f"{module}.{name}", backbone.config.hidden_size)
            if tensor is not None:
                tensors[index] = tensor
    if not any(found.values()):
        return []
    spec = NormSpec(weight=bool(found["weight"]), bias=bool(found["bias"]))
    return [
        ImportedPart(spec, {name: _norms(name, tensors, spec, backbone) for name, tensors in found.items() if tensors})
    ]


def _norms(name: str, found: Mapping[int, Tensor], spec: NormSpec, backbone: Backbone) -> Tensor:
    kept = spec.biased(backbone.config) if name == "bias" else spec.norms(backbone.config)
    own = backbone_norms(name, backbone, kept)
    refused = sorted(set(found) - set(kept))
    if refused:
        raise AdapterError(f"norm {refused[0]} has a bias, which the final norms of a T5 cannot have")
    whole = torch.zeros(len(kept), backbone.config.hidden_size) if own is None else own.cpu().clone()
    for index, tensor in found.items():
        whole[kept.index(index)] = tensor
    return whole


def take_biases(checkpoint: Checkpoint, places: ModuleSites, backbone: Backbone) -> list[ImportedPart]:
    """The part of the biases of projections in `checkpoint`, if there are any."""
    found: dict[ModuleSite, Tensor] = {}
    for module, place in places.projections.items():
        tensor = checkpoint.take_if(f"{module}.bias")
        if tensor is not None:
            found[place] = tensor
    if not found:
        return []
    sites = tuple(dict.fromkeys(cast(BiasSite, site) for site, _ in found))
    spec = BiasSpec(sites=sites)
    return [ImportedPart(spec, {site: _biases(site, found, spec, backbone) for site in sites})]


def _biases(site: BiasSite, found: Mapping[ModuleSite, Tensor], spec: BiasSpec, backbone: Backbone) -> Tensor:
    whole = backbone_bias(spec, site, backbone).cpu().clone()
    for (own, index), tensor in found.items():
        if own != site:
            continue
        target = whole[index] if whole.dim() == 2 else whole
        if target.shape != tensor.shape:
            raise AdapterError(
                f"the bias of {site!r} has shape {list(tensor.shape)}; on this backbone it must be {list(target.shape)}"
            )
        target.copy_(tensor)
    return whole
