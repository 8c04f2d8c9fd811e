"""The identity of a frozen backbone: an adapter only fits the weights it was trained on."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict

import torch

from peltier_backbone.config import BackboneConfig


def fingerprint(config: BackboneConfig, tensors: Mapping[str, torch.Tensor]) -> str:
    """`sha256:<hex>` over the configuration and the tensors sorted by name, in the dtype they were stored in."""
    digest = hashlib.sha256(json.dumps(asdict(config), sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return f"sha256:{digest.hexdigest()}"
