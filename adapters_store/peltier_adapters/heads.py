"""The heads of a batch: one vector a row in, logits on the host out."""

from collections.abc import Callable, Sequence

import torch
from peltier_backbone.native.library import serving_library
from torch import Tensor

from peltier_adapters.bank import Bank, Slot, head_spec
from peltier_adapters.parts import head
from peltier_adapters.row import Row

# A bank with a slot is one head, without one all heads of that bank; None is no head at all.
_Kind = tuple[Bank, Slot | None] | None


def read_heads(rows: Sequence[Row], pooled: Callable[[str], Tensor], device: torch.device) -> list[Tensor]:
    """Logits of `rows`, each [outputs] in float32 on the CPU; `pooled` gives [rows, hidden] for a kind of pooling. A
    row without an adapter gets its first token's state.

    One product for all heads of equal parts where that pays: on a GPU, and where native kernels serve.
    """
    kinds: dict[_Kind, list[int]] = {}
    together = _compute_together(device)
    for number, row in enumerate(rows):
        kinds.setdefault(_kind(row, together), []).append(number)
    order = [number for members in kinds.values() for number in members]
    places = torch.split(torch.tensor(order, device=device), [len(members) for members in kinds.values()])
    logits = [
        _read(kind, [rows[number] for number in members], pooled, own)
        for (kind, members), own in zip(kinds.items(), places, strict=True)
    ]
    # One copy for all heads: the host waits for the device once.
    flat = torch.split(torch.cat([one.flatten() for one in logits]).cpu(), [one.numel() for one in logits])
    outputs = [row for own, one in zip(flat, logits, strict=True) for row in own.view_as(one).unbind()]
    found = dict(zip(order, outputs, strict=True))
    return [found[number] for number in range(len(rows))]


def _compute_together(device: torch.device) -> bool:
    return device.type == "cuda" or serving_library(device, torch.float32) is not None


def _kind(row: Row, together: bool) -> _Kind:
    """Rows of one kind are computed in one product."""
    if row.resident is None:
        return None
    bank = row.resident.head
    # A hidden layer's weights are too many to be laid side by side for every row, and a chain of products has no tanh.
    return bank, None if together and not head_spec(bank).hidden else row.resident.head_slot


def _read(kind: _Kind, rows: Sequence[Row], pooled: Callable[[str], Tensor], places: Tensor) -> Tensor:
    """Logits of `rows`, which are those at `places`, in float32."""
    if kind is None:
        return pooled("first").index_select(0, places).float()
    bank, slot = kind
    spec = head_spec(bank)
    vectors = pooled(spec.pooling).index_select(0, places)
    slots = [row.resident.head_slot for row in rows if row.resident] if slot is None else [slot]
    tensors = bank.gather(slots).under("head.")
    if slot is None:
        return head.apply_each(tensors, vectors)
    return head.apply(spec, {name: tensor[0] for name, tensor in tensors.items()}, vectors)
