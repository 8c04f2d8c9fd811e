"""The tensors of one shape, which have fixed addresses, and the forward pass over them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import torch
from peltier_backbone.load import Backbone
from peltier_backbone.packing import list_tokens
from torch import Tensor

from peltier_adapters.batch.adaptation import SiteAdaptation
from peltier_adapters.batch.row import Row
from peltier_adapters.graphs.attention import Attention
from peltier_adapters.graphs.indices import Indices
from peltier_adapters.graphs.shape import Shape, runs_of
from peltier_adapters.ops.op import AddedBias
from peltier_adapters.ops.program_tokens import ProgramTokens
from peltier_adapters.ops.triton import ProgramOps, TritonOps
from peltier_adapters.residency.bank import Bank

# Returns the stack of a bank for a number of adapters, [groups, length].
StackOf = Callable[[Bank, int], Tensor]


@dataclass(frozen=True)
class _Read:
    """The inputs of the embeddings."""

    ids: Tensor
    types: Tensor
    positions: Tensor


class Frame:
    """The inputs and outputs of a batch of one shape. `load` writes the inputs of a batch, and `run` computes the
    outputs only from these. Until the next `run`, `pooled` has one vector per row for each kind of pooling, [rows,
    hidden]."""

    def __init__(self, backbone: Backbone, shape: Shape, stack_of: StackOf) -> None:
        self._backbone, self._shape = backbone, shape
        self._stacks = [stack_of(one.bank, one.groups) for one in shape.banks]
        self._indices = Indices(_sizes(shape), backbone.device)
        kinds = ("first", "mean") if backbone.bert.pooler is None else ("first", "mean", "pooler")
        size = (shape.rows, backbone.config.hidden_size)
        dtypes = {"mean": torch.float32}
        self.pooled = {
            kind: torch.zeros(size, dtype=dtypes.get(kind, backbone.dtype), device=backbone.device) for kind in kinds
        }

    def load(self, rows: Sequence[Row]) -> None:
        """Writes the inputs of a batch. Its `rows` are in `Row.order`, and the shape covers them."""
        encoded = [row.prompted for row in rows]
        starts = [*accumulate(map(len, encoded), initial=0)]
        values = list_tokens(encoded, self._backbone.config)._asdict() | {"starts": starts}
        plain = len(rows)
        first = next((number for number, row in enumerate(rows) if row.body is not None), len(rows))
        for number, (bank, own) in enumerate(runs_of(rows)):
            if bank.has_prefix:
                plain = min(plain, first)
            self._load_bank(number, own, starts[first : first + len(own) + 1], first, values)
            first += len(own)
        self._indices.fill(values | {"plain": starts[: plain + 1]})

    def _load_bank(
        self, number: int, rows: Sequence[Row], starts: Sequence[int], first: int, values: dict[str, Sequence[int]]
    ) -> None:
        groups = [(slot, len(list(own))) for slot, own in groupby(rows, key=lambda row: row.slot)]
        sizes = [size for _, size in groups]
        flats = [slot.read() for slot, _ in groups if slot]
        torch.stack(flats, out=self._stacks[number][: len(flats)])
        values[f"{number}.rows"] = starts
        values[f"{number}.groups"] = [starts[row] for row in accumulate(sizes, initial=0)]
        values[f"{number}.row_groups"] = [group for group, size in enumerate(sizes) for _ in range(size)]
        room = self._shape.banks[number].rows - len(rows)
        # The places of unused rows are after the last row, where no output is read.
        values[f"{number}.places"] = [*range(first, first + len(rows)), *[self._shape.rows] * room]

    def run(self) -> None:
        """Computes the loaded batch. It neither waits for the device nor reads from the host, so it can be captured."""
        programs = list(self._programs())
        hidden = self._encode(programs)
        starts = self._indices["starts"]
        first = hidden.index_select(0, starts[:-1].clamp(max=self._shape.tokens - 1))
        self.pooled["first"].copy_(first)
        mean = torch.segment_reduce(hidden.float(), "mean", offsets=starts, axis=0, unsafe=True, initial=0)
        self.pooled["mean"].copy_(mean)
        if "pooler" in self.pooled:
            self.pooled["pooler"].copy_(self._pool(first, programs))

    def _programs(self) -> Iterator[ProgramOps]:
        for number, (one, stack) in enumerate(zip(self._shape.banks, self._stacks, strict=True)):
            groups, rows, row_groups = (self._indices[f"{number}.{kind}"] for kind in ("groups", "rows", "row_groups"))
            yield ProgramOps(one.bank.program, ProgramTokens(groups, rows, row_groups, self._shape.tokens), stack)

    def _encode(self, programs: Sequence[ProgramOps]) -> Tensor:
        indices, backbone, shape = self._indices, self._backbone, self._shape
        prefixed = [
            (indices[f"{number}.rows"], one.prefix) for number, one in enumerate(programs) if one.program.prefixes
        ]
        attention = Attention(backbone, indices["plain"], shape.longest, shape.tokens, prefixed)
        read = _Read(indices["ids"], indices["types"], indices["positions"])
        ops = TritonOps([(one, slice(None)) for one in programs])
        return backbone.bert.encode(read, SiteAdaptation(ops, [one.program for one in programs]), attention)

    def _pool(self, first: Tensor, programs: Sequence[ProgramOps]) -> Tensor:
        pooler = self._backbone.bert.pooler
        assert pooler is not None, "`pooled` has room for it only where there is one"
        scores = pooler(first)
        scores = torch.cat((scores, scores[:1]))
        for number, one in enumerate(programs):
            for op in one.program.placed.get(("pooler", 0), ()):
                assert isinstance(op, AddedBias), "nothing else acts there"
                scores.index_add_(0, self._indices[f"{number}.places"], one.of_rows(op).to(scores.dtype))
        return torch.tanh(scores[:-1])


def _sizes(shape: Shape) -> dict[str, int]:
    """The length of each index vector, of the batch and of each of its banks."""
    sizes = {"ids": shape.tokens, "types": shape.tokens, "positions": shape.tokens}
    sizes |= {"starts": shape.rows + 1, "plain": shape.rows + 1}
    for number, one in enumerate(shape.banks):
        own = {"groups": one.groups + 1, "rows": one.rows + 1, "row_groups": one.rows, "places": one.rows}
        sizes |= {f"{number}.{kind}": size for kind, size in own.items()}
    return sizes
