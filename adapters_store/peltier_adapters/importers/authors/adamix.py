"""Checkpoints of the AdaMix authors' code for BERT and RoBERTa (docs/methods.md#authors), whose experts are merged."""

import re
from pathlib import Path

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.bottleneck import Bottleneck, Kind, create_bottleneck
from peltier_adapters.importers.shared.checkpoint import Checkpoint, find_file, read_checkpoint
from peltier_adapters.importers.shared.head import take_head
from peltier_adapters.importers.shared.imported import ImportedAdapter
from peltier_adapters.importers.shared.module_sites import ModuleSite, base_names, find_sites

_FILES = ("pytorch_model_expert_soup.bin",)


def read_adamix(path: Path, backbone: Backbone) -> ImportedAdapter:
    """The mean of the experts as one bottleneck after the feed-forward block, and the classifier."""
    whole = read_checkpoint(find_file(path, _FILES))
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
