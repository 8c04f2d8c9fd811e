"""Pools the states of a batch and runs its heads: they read one vector per row, or each token of a row, and return
logits on the host."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.bert import Bert
from peltier_backbone.linear.activation import activate
from peltier_backbone.modernbert.modernbert import ModernBert
from peltier_backbone.text.packing import Packed
from torch import Tensor

from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.batch.row import Row, have_terms
from peltier_adapters.batch.vocabulary import read_terms
from peltier_adapters.ops.backend import AdapterGroup, Backend, GroupedOps
from peltier_adapters.parts.head import norm_index, plain_norm
from peltier_adapters.residency.bank import Resident, head_spec

Pooling = Callable[[str], Tensor]

# Heads with a norm share a matrix too.
_PLAIN, _NORMED = -1, -2
# Heads of at most so many outputs share a matrix of logits, which is as wide as the widest of them.
_SHARED_OUTPUTS = 64


class Pooled:
    """One vector per row of a batch, [rows, hidden], computed once for each kind of pooling that a head of the batch
    uses; with `tokens` the states of all tokens, [tokens, hidden]."""

    def __init__(self, model: Bert | ModernBert, packed: Packed, adaptation: BatchAdaptation, hidden: Tensor) -> None:
        self._model, self._packed, self._adaptation, self._hidden = model, packed, adaptation, hidden
        self._known: dict[str, Tensor] = {}

    def __call__(self, pooling: str) -> Tensor:
        if pooling not in self._known:
            self._known[pooling] = getattr(self, f"_{pooling}")()
        return self._known[pooling]

    def _first(self) -> Tensor:
        return self._hidden.index_select(0, self._packed.first_tokens)

    def _tokens(self) -> Tensor:
        return self._hidden

    def _mean(self) -> Tensor:
        return self._reduce("mean")

    def _max(self) -> Tensor:
        return self._reduce("max")

    def _reduce(self, how: str) -> Tensor:
        lengths = torch.tensor(self._packed.lengths, device=self._hidden.device)
        return torch.segment_reduce(self._hidden.float(), how, lengths=lengths, axis=0)

    def _pooler(self) -> Tensor:
        pooler = self._model.pooler
        assert pooler is not None, "artifacts that need a pooler are refused where there is none"
        return torch.tanh(self._adaptation.pool(pooler(self("first"))))


@dataclass(frozen=True)
class _HeadInput:
    """The vectors of one row: from `start` to `end` of those that `pooling` returns. `resident` has the head, None for
    a row whose output is these vectors."""

    number: int
    pooling: str
    start: int
    end: int
    resident: Resident | None = None

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def matrix(self) -> int:
        """Reads with the same number are computed in one matrix of logits. A wide head has its own, so that it makes
        no row of another head wider."""
        if self.resident is None or head_spec(self.resident.head).outputs <= _SHARED_OUTPUTS:
            return _NORMED if self.resident is not None and head_spec(self.resident.head).normed else _PLAIN
        return self.resident.head.number

    @property
    def order(self) -> tuple[int, int, int]:
        if self.resident is None:
            return (_PLAIN, -1, -1)
        return (self.matrix, self.resident.head.number, self.resident.head_slot.number)


def read_heads(rows: Sequence[Row], pooled: Pooling, backbone: Backbone, backend: Backend) -> list[Tensor]:
    """The logits of each row in float32 on the CPU: [outputs], [tokens, outputs] if its head reads tokens, or
    [terms, 2] if it has terms. `pooled` returns [rows, hidden] for a kind of pooling, and all tokens [tokens, hidden]
    for `tokens`. A row whose head has no projection gets its vector, and a row without an adapter the state of its
    first token. The `backend` computes in float32."""
    reads, device = _list_reads(rows), backbone.device
    headed = sorted((read for read in reads if read.resident is not None), key=lambda read: read.order)
    given = [read for read in reads if read.resident is None]
    parts = [list(members) for _, members in groupby(headed, key=lambda read: read.matrix)]
    pieces = [_logits(members, pooled, backbone, backend) for members in parts]
    if given:
        parts.append(given)
        pieces.append(_vectors(given, pooled, device))
    found = dict[int, Tensor]()
    for own, members in zip(pieces if device.type == "cpu" else _copy_to_host(pieces), parts, strict=True):
        outputs = torch.split(own, [len(read) for read in members])
        found |= {read.number: output for read, output in zip(members, outputs, strict=True)}
    logits = [_cut(row, found[number]) for number, row in enumerate(rows)]
    return read_terms(rows, logits, backbone, backend) if have_terms(rows) else logits


def _copy_to_host(pieces: Sequence[Tensor]) -> Sequence[Tensor]:
    """Copies of the pieces, made at once, so that the host waits for the device only once."""
    flat = torch.split(torch.cat([one.flatten() for one in pieces]).cpu(), [one.numel() for one in pieces])
    return [own.view_as(piece) for own, piece in zip(flat, pieces, strict=True)]


def _list_reads(rows: Sequence[Row]) -> list[_HeadInput]:
    reads, starts = [], accumulate((row.num_inputs for row in rows), initial=0)
    for number, (row, (start, end)) in enumerate(zip(rows, pairwise(starts), strict=True)):
        if row.resident is None:
            reads.append(_HeadInput(number, "first", number, number + 1))
            continue
        spec = head_spec(row.resident.head)
        own = row.resident if spec.projection else None
        first, last = (start, end) if spec.pooling == "tokens" else (number, number + 1)
        reads.append(_HeadInput(number, spec.pooling, first, last, own))
    return reads


def _cut(row: Row, output: Tensor) -> Tensor:
    """The output of one row, without the columns of wider heads."""
    if row.resident is None:
        return output[0]
    spec = head_spec(row.resident.head)
    return output[:, : spec.outputs] if spec.pooling == "tokens" else output[0, : spec.outputs]


def _logits(headed: Sequence[_HeadInput], pooled: Pooling, backbone: Backbone, backend: Backend) -> Tensor:
    """The logits of all vectors of `headed`, in one matrix that is as wide as the widest head of them."""
    x = _vectors(headed, pooled, backbone.device)
    runs = [list(run) for _, run in groupby(headed, key=lambda read: read.resident and read.resident.head_slot)]
    specs = [head_spec(run[0].resident.head) for run in runs if run[0].resident]
    y = torch.zeros(len(x), max(spec.outputs for spec in specs), device=x.device)
    lengths = [len(read) for read in headed]
    ops = backend.group([_group(run) for run in runs], lengths)
    y = ops.act("head", 0, y, x)
    return add_normed(y, x, ops, backbone) if any(spec.normed for spec in specs) else y


def add_normed(y: Tensor, x: Tensor, ops: GroupedOps, backbone: Backbone) -> Tensor:
    """y plus the logits of the heads with a norm, norm(gelu(x D + d)) W + b, of vectors x [vectors, hidden]."""
    inner = activate(ops.act("head_dense", 0, torch.zeros_like(x), x), "gelu")
    base = plain_norm(backbone.config, x.device)
    return ops.act("normed_head", 0, y, ops.norm(norm_index(backbone.config), inner, base))


def _group(run: Sequence[_HeadInput]) -> AdapterGroup:
    one = run[0].resident
    assert one is not None, "these rows have heads"
    return AdapterGroup(len(run), one.head.program, one.head_slot.read())


def _vectors(reads: Sequence[_HeadInput], pooled: Pooling, device: torch.device) -> Tensor:
    """All vectors of `reads`, [vectors, hidden] in float32."""
    own = {kind: pooled(kind) for kind in dict.fromkeys(read.pooling for read in reads)}
    if len(own) == 1:
        places = torch.tensor([place for read in reads for place in range(read.start, read.end)], device=device)
        return own[reads[0].pooling].index_select(0, places).float()
    return torch.cat([own[read.pooling][read.start : read.end] for read in reads]).float()
