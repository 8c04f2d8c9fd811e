"""A bottleneck's maps in foreign checkpoints: dense, low-rank, PHM, and factored PHM."""

import torch
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint

Map = dict[str, Tensor]


def take_maps(checkpoint: Checkpoint, down: str, up: str, hidden: int, rule: Tensor | None = None) -> tuple[Map, Map]:
    """The maps `down` and `up`, from `hidden` values to the bottleneck and back. Factored maps with a shared `rule` are
    LPHM maps."""
    first = take_map(checkpoint, down, (hidden, None), rule)
    return first, take_map(checkpoint, up, (len(first["bias"]), hidden), rule)


def take_map(checkpoint: Checkpoint, name: str, sizes: tuple[int, int | None], rule: Tensor | None = None) -> Map:
    """The map `name` with these numbers of inputs and outputs; None is any number of outputs."""
    before, after = sizes
    if f"{name}.weight" in checkpoint:
        weight = checkpoint.take(f"{name}.weight", after, before)
        return {"weight": weight.T, "bias": checkpoint.take(f"{name}.bias", len(weight))}
    bias = checkpoint.take(f"{name}.b", after)
    own = take_rule(checkpoint, f"{name}.phm_rule")
    if own is not None and rule is not None and not torch.equal(own, rule):
        raise AdapterError(f"{checkpoint.where}: tensor '{name}.phm_rule' differs from the rule that all maps share")
    if checkpoint.num_dims(f"{name}.W_left") == 2:
        return _lowrank(checkpoint, name, before, len(bias)) | {"bias": bias}
    if own is None and rule is None:
        raise AdapterError(f"{checkpoint.where}: the map {name!r} has no phm_rule, neither its own nor a shared one")
    return _phm(checkpoint, name, (before, len(bias)), own, rule) | {"bias": bias}


def take_rule(checkpoint: Checkpoint, name: str) -> Tensor | None:
    """The rule `name` [n, n, n], or None if there is none."""
    rule = checkpoint.take_if(name, None, None, None)
    if rule is not None and len(set(rule.shape)) != 1:
        raise AdapterError(f"{checkpoint.where}: tensor {name!r} has shape {list(rule.shape)}; a rule is [n, n, n]")
    return rule


def _phm(checkpoint: Checkpoint, name: str, sizes: tuple[int, int], own: Tensor | None, rule: Tensor | None) -> Map:
    whole = own if rule is None else rule
    assert whole is not None, "the caller has checked this"
    n = len(whole)
    before, after = (size // n for size in sizes)
    if f"{name}.W" in checkpoint:
        return {"weight": checkpoint.take(f"{name}.W", n, before, after), "rule": whole}
    left = checkpoint.take(f"{name}.W_left", n, before, None)
    right = checkpoint.take(f"{name}.W_right", n, left.shape[-1], after)
    if rule is None:  # a factored map with a rule of its own is a PHM map
        return {"weight": left @ right, "rule": whole}
    return {"left": left, "right": right}


def _lowrank(checkpoint: Checkpoint, name: str, before: int, after: int) -> Map:
    left = checkpoint.take(f"{name}.W_left", before, None)
    if left.shape[1] != 1:
        raise AdapterError(
            f"the low-rank map {name!r} has rank {left.shape[1]}; the authors' code multiplies its factors "
            "elementwise, which is a matrix product only for rank 1"
        )
    return {"left": left, "right": checkpoint.take(f"{name}.W_right", 1, after)}
