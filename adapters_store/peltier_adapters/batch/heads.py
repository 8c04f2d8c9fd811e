"""Runs the heads of a batch: reads one vector per row and returns logits on the host."""

from collections.abc import Callable, Sequence
from itertools import groupby

import torch
from torch import Tensor

from peltier_adapters.batch.row import Row
from peltier_adapters.ops import backend
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.residency.bank import Resident, head_spec

Pooling = Callable[[str], Tensor]


def read_heads(rows: Sequence[Row], pooled: Pooling, device: torch.device) -> list[Tensor]:
    """The logits of each row, [outputs] in float32 on the CPU. `pooled` returns [rows, hidden] for a kind of pooling. A
    row without an adapter gets the state of its first token instead."""
    headed = [(number, row.resident) for number, row in enumerate(rows) if row.resident]
    headed.sort(key=lambda pair: _order(pair[1]))
    bare = [number for number, row in enumerate(rows) if row.resident is None]
    pieces = [_logits(headed, pooled, device)] if headed else []
    if bare:
        pieces.append(pooled("first")[torch.tensor(bare, device=device)].float())
    # One copy for all rows, so that the host waits for the device only once.
    flat = torch.split(torch.cat([one.flatten() for one in pieces]).cpu(), [one.numel() for one in pieces])
    outputs = [row for own, one in zip(flat, pieces, strict=True) for row in own.view_as(one).unbind()]
    widths = {number: head_spec(resident.head).outputs for number, resident in headed}
    found = dict(zip([*widths, *bare], outputs, strict=True))
    return [found[number][: widths.get(number)] for number in range(len(rows))]


def _order(resident: Resident) -> tuple[int, int]:
    return resident.head.number, resident.head_slot.number


def _logits(headed: Sequence[tuple[int, Resident]], pooled: Pooling, device: torch.device) -> Tensor:
    """The logits of the rows in `headed`, in one matrix that is as wide as the widest head."""
    specs = [head_spec(resident.head) for _, resident in headed]
    x = _vectors([spec.pooling for spec in specs], [number for number, _ in headed], pooled, device)
    groups = [_group([own for _, own in run]) for _, run in groupby(headed, key=lambda pair: pair[1].head_slot)]
    y = torch.zeros(len(headed), max(spec.outputs for spec in specs), device=device)
    ops = backend.choose_backend(device, torch.float32).group(groups, [1] * len(headed))
    return ops.act("head", 0, y, x)


def _group(residents: Sequence[Resident]) -> AdapterGroup:
    one = residents[0]
    return AdapterGroup(len(residents), one.head.program, one.head_slot.read())


def _vectors(kinds: Sequence[str], numbers: Sequence[int], pooled: Pooling, device: torch.device) -> Tensor:
    """The inputs of the heads of rows `numbers`, [rows, hidden] in float32. `kinds` has the kind of pooling of each."""
    places = torch.tensor(numbers, device=device)
    own = {kind: pooled(kind).index_select(0, places).float() for kind in dict.fromkeys(kinds)}
    if len(own) == 1:
        return own[kinds[0]]
    return torch.stack([own[kind][place] for place, kind in enumerate(kinds)])
