"""Unmerged AdaMix: adapters of single routes through its experts."""

import torch
from torch import Tensor

from peltier_training.models.experts import Experts
from peltier_training.models.model import TrainableAdapter

RouteTensors = dict[str, Tensor]


@torch.no_grad()
def fixed_routes(model: TrainableAdapter) -> list[RouteTensors]:
    """Artifact tensors of each copy, used in every projection and layer; the paper's fixed routing is the first."""
    model.eval()
    return [
        _clone({name: tensor for source in model.sources for name, tensor in _fixed(source, copy).items()})
        for copy in range(int(model.settings["experts"]))
    ]


@torch.no_grad()
def random_routes(model: TrainableAdapter, num: int, seed: int) -> list[RouteTensors]:
    """Artifact tensors of `num` routes drawn as in training: a copy for each projection and layer
    (docs/methods/adamix.md)."""
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        drawn = [_clone(model.served()) for _ in range(num)]
    model.eval()
    return drawn


def _fixed(source: torch.nn.Module, copy: int) -> RouteTensors:
    tensors: RouteTensors = source.fixed(copy) if isinstance(source, Experts) else source()
    return tensors


def _clone(tensors: RouteTensors) -> RouteTensors:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
