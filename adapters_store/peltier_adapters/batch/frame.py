"""The forward pass of an encoder on a GPU, from token ids to logits, with one copy from the host and one back.

The host writes all that it knows of a batch to one page-locked buffer (`load`). The rest is computed on the device from
a copy of this buffer (`run`), without a look at the host, so that `graphs/` can capture it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from peltier_backbone.load import Backbone
from peltier_backbone.native.placed_rows import PlacedRow
from peltier_backbone.packing import list_tokens
from torch import Tensor

from peltier_adapters.batch.adaptation import SiteAdaptation
from peltier_adapters.batch.indices import Indices
from peltier_adapters.batch.row import Row
from peltier_adapters.batch.shape import Shape
from peltier_adapters.ops import backend
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.ops.kernels.attention import ROW_WORDS
from peltier_adapters.ops.kernels.pool import pool
from peltier_adapters.ops.kernels.rows import Rows
from peltier_adapters.ops.op import Program
from peltier_adapters.ops.program_table import ProgramTable
from peltier_adapters.ops.triton import TritonBackend, TritonOps
from peltier_adapters.residency.bank import Slot, head_spec


@dataclass(frozen=True)
class _Read:
    """The inputs of the embeddings."""

    ids: Tensor
    types: Tensor
    positions: Tensor


@dataclass(frozen=True)
class _Attention:
    """Implements `bert.Attention` for rows of any lengths, with the prefixes of their adapters."""

    ops: TritonOps
    placed: Tensor
    longest: int
    num_heads: int

    def attend(self, layer: int, x: Tensor, qkv: Tensor) -> Tensor:
        query, key, value = qkv.chunk(3, -1)
        size = query.shape[1] // self.num_heads
        kernels = self.ops.placed_prefixes(layer, x)
        return kernels.attend_places(
            query, key, value, size, self.placed, self.longest, self.num_heads, scale=size**-0.5
        )  # fmt: skip


class Frame:
    """The inputs and outputs of a batch of one shape. `load` writes the inputs of a batch that the shape covers, `run`
    computes the outputs only from these, and `read` returns them until the next `run`."""

    def __init__(self, backbone: Backbone, shape: Shape) -> None:
        self._backbone, self._shape = backbone, shape
        self._indices = Indices(_sizes(shape), backbone.device)
        self._bodies, self._heads = (_kernels(backbone, dtype) for dtype in (backbone.dtype, torch.float32))
        # The kernels are compiled for rows that are multiples of 16 apart.
        self._logits = torch.empty(shape.rows, -(-shape.outputs // 16) * 16, device=backbone.device)
        self._vectors = torch.empty(shape.rows, backbone.config.hidden_size, device=backbone.device)

    def load(self, rows: Sequence[Row]) -> None:
        """Write the inputs of a batch."""
        encoded = [row.prompted for row in rows]
        starts = [*accumulate(map(len, encoded), initial=0)]
        ids, types, positions = list_tokens(encoded, self._backbone.config)
        lengths = [len(one) - one.pads for one in encoded]
        places = zip(starts, map(len, encoded), starts, lengths, strict=False)
        residents = [row.resident for row in rows]
        kinds = [None if one is None else head_spec(one.head).pooling for one in residents]
        self._indices.fill({
            "ids": ids, "types": types, "positions": positions, "starts": starts, "units": range(len(rows) + 1),
            "placed": [word for place in places for word in PlacedRow(*place).layout()],
            "bases": [_address(row.slot) for row in rows],
            "programs": [self._bodies.address(None if row.body is None else row.body.program) for row in rows],
            "head_bases": [_address(None if one is None else one.head_slot) for one in residents],
            "head_programs": [self._heads.address(None if one is None else one.head.program) for one in residents],
            "means": [kind == "mean" for kind in kinds],
            "poolers": [kind == "pooler" for kind in kinds],
        })  # fmt: skip

    def run(self, groups: Sequence[AdapterGroup] = ()) -> None:
        """Compute the loaded batch. This neither waits for the device nor reads from the host, so it can be captured.
        `groups`, which cover the rows, may record gates."""
        indices, shape = self._indices, self._shape
        rows = Rows(indices["starts"], indices["bases"], indices["programs"], shape.longest)
        tables = self._bodies.tables(bank.program for bank in shape.bodies)
        ops = TritonOps(rows, tables, groups)
        placed = indices["placed"].view(shape.rows, ROW_WORDS)
        attention = _Attention(ops, placed, shape.longest, self._backbone.config.num_heads)
        read = _Read(indices["ids"], indices["types"], indices["positions"])
        hidden = self._backbone.bert.encode(read, SiteAdaptation(ops), attention)
        pool(self._vectors, hidden, rows, indices["means"])
        given = self._vectors
        if shape.uses_pooler:
            given = torch.where(indices["poolers"][:, None].bool(), self._pool(tables), given)
        own = Rows(indices["units"], indices["head_bases"], indices["head_programs"], 1)
        heads = TritonOps(own, self._heads.tables(bank.program for bank in shape.heads))
        heads.act("head", 0, self._logits.zero_(), given)

    def _pool(self, tables: Mapping[Program, ProgramTable]) -> Tensor:
        pooler = self._backbone.bert.pooler
        assert pooler is not None, "artifacts that need a pooler are refused where there is none"
        rows = Rows(self._indices["units"], self._indices["bases"], self._indices["programs"], 1)
        scores = pooler(self._vectors.to(self._backbone.dtype))
        return torch.tanh(TritonOps(rows, tables).act("pooler", 0, scores, scores)).float()

    def read(self, rows: Sequence[Row]) -> list[Tensor]:
        """The logits of each row, [outputs] in float32 on the CPU. A row without an adapter has the state of its first
        token instead."""
        outputs = [None if row.resident is None else head_spec(row.resident.head).outputs for row in rows]
        found = torch.cat((self._logits, self._vectors), 1) if None in outputs else self._logits
        host, width = found[: len(rows)].cpu(), self._logits.shape[1]
        return [row[width:] if own is None else row[:own] for row, own in zip(host, outputs, strict=True)]


def _sizes(shape: Shape) -> dict[str, int]:
    """The length of each index vector."""
    sizes = dict.fromkeys(("ids", "types", "positions"), shape.tokens)
    sizes |= dict.fromkeys(("starts", "units"), shape.rows + 1) | {"placed": ROW_WORDS * shape.rows}
    own = ("bases", "programs", "head_bases", "head_programs", "means", "poolers")
    return sizes | dict.fromkeys(own, shape.rows)


def _kernels(backbone: Backbone, dtype: torch.dtype) -> TritonBackend:
    chosen = backend.choose_backend(backbone.device, dtype)
    assert isinstance(chosen, TritonBackend), "other backends compute no frames"
    return chosen


def _address(slot: Slot | None) -> int:
    return 0 if slot is None else slot.read().data_ptr()
