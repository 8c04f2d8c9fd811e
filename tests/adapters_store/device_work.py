"""Counts what a forward pass asks of a device. Tensors are on the meta device, which has shapes but no values, so the
pass makes every decision of the host and computes nothing."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from peltier_adapters.artifact.label_tree import create_tree
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.residency.bank import Bank, Resident, Slot
from peltier_adapters.spec.parts import served_parts
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.weights import build_bert
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.linear.linear import PlainLinear
from peltier_backbone.t5.weights import build_t5
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime.jit import JITFunction

META = torch.device("meta")
TASK = TaskSpec(type="classification", labels=("no", "yes"), inputs="single", max_length=64)
# Operators that allocate or describe, and launch nothing.
_SILENT = (
    "empty",
    "new_empty",
    "empty_like",
    "empty_strided",
    "new_empty_strided",
    "detach",
    "detach_",
    "lift_fresh",
    "_unsafe_view",
)
_COPIES = ("_to_copy", "copy_", "to")
_WAITS = ("item", "is_nonzero", "_local_scalar_dense", "nonzero", "masked_select", "unique_consecutive")


@dataclass
class Work:
    """Kernels launched, copies from the host to the device, and copies from the device, for which the host waits."""

    launches: int = 0
    sent: int = 0
    fetched: int = 0


class Counted(TorchDispatchMode):
    """Counts the work of operators, and refuses those whose inputs lie on both sides."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        if name in _WAITS and any(one.is_meta for one in given):
            self._work.fetched += 1
        if name in _COPIES and given[0].is_meta and torch.device(kwargs.get("device") or META).type == "cpu":
            self._work.fetched += 1
            return torch.zeros(given[0].shape, dtype=kwargs.get("dtype") or given[0].dtype)
        found = func(*args, **kwargs)
        made = [one for one in tree_leaves(found) if isinstance(one, Tensor)]
        sides = {one.is_meta for one in (*given, *made) if one.dim() or not one.is_meta}
        if True not in sides:
            return found
        if name in _COPIES and False in sides:
            self._work.sent += 1
        else:
            assert name == "view_as" or False not in sides, f"{name} mixes devices"
            if name not in _SILENT and not _only_views(func, given, made):
                self._work.launches += 1
                self.names.append(name)
        return found


def _only_views(func: Any, given: Sequence[Tensor], made: Sequence[Tensor]) -> bool:
    writes = any(one.alias_info is not None and one.alias_info.is_write for one in func._schema.arguments)
    memory = {one.untyped_storage()._cdata for one in given}
    return not writes and all(one.untyped_storage()._cdata in memory for one in made)


@contextmanager
def counted() -> Iterator[Work]:
    """Counts the work of the block. Kernels in Triton are launched nowhere."""
    work = Work()

    def launch(self: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        assert all(one.is_meta for one in args if isinstance(one, Tensor)), f"{self} mixes devices"
        work.launches += 1
        mode.names.append(f"triton:{self.__name__}")

    create = torch.tensor

    def send(data: Any, **options: Any) -> Tensor:
        made = create(data, **options)
        work.sent += made.is_meta  # no mode sees the copy of a list
        return made

    mode = Counted(work)
    with pytest.MonkeyPatch.context() as patch, mode:
        patch.setattr(JITFunction, "run", launch)
        patch.setattr(torch, "tensor", send)
        yield work


class _Shapes:
    """Weights of a checkpoint that has every tensor, without data."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def __contains__(self, name: str) -> bool:
        return True

    def take(self, name: str, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self._dtype, device=META)

    def finish(self, model: str) -> None:
        """Nothing is left."""


def without_data(backbone: Backbone, config: BackboneConfig, dtype: torch.dtype = torch.bfloat16) -> Backbone:
    """A backbone of the shape of `config` on the meta device, with the tokenizer of `backbone`."""
    build: Callable[..., Any] = build_t5 if config.generates else build_bert
    model = build(config, _Shapes(dtype), PlainLinear)
    return replace(backbone, config=config, model=model, device=META, dtype=dtype)


def residents(backbone: Backbone, preset: str, num: int, numbers: Iterator[int]) -> list[Resident]:
    """Adapters of a preset, whose banks have the next of `numbers`."""
    found = find_preset(preset)
    parts = served_parts(found.compose(found.settings({}, backbone.config), backbone.config, outputs=2))
    body = Bank(next(numbers), tuple(part for part in parts if part.kind != "head"), backbone)
    head = Bank(next(numbers), tuple(part for part in parts if part.kind == "head"), backbone)
    tree = create_tree(0, 1, [[5, 6], [7]]) if backbone.config.generates else None

    def slot(bank: Bank) -> Slot:
        return bank.slot(bank.prepare(torch.empty(bank.layout.length, device=META)))

    return [Resident(TASK, str(number), 0, body, slot(body), head, slot(head), tree) for number in range(num)]
