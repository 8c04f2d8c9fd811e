"""The forward pass of an encoder on a GPU, from token ids to logits, with one copy from the host and one back.

The host writes all that it knows of a batch to one page-locked buffer (`load`). The rest is computed on the device from
a copy of this buffer (`run`), without a look at the host, so that `graphs.py` can capture it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Self

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.bert import Bert
from peltier_backbone.bert.positions import RelativePositions
from peltier_backbone.model import Model
from peltier_backbone.modernbert.modernbert import ModernBert
from peltier_backbone.native.rows import LineBias, PlacedRow
from peltier_backbone.text.packing import list_tokens
from torch import Tensor

from peltier_adapters.batch.adaptation import SiteAdaptation
from peltier_adapters.batch.heads import add_normed
from peltier_adapters.batch.indices import Indices
from peltier_adapters.batch.row import Row, have_terms
from peltier_adapters.batch.vocabulary import read_terms
from peltier_adapters.gpu.backend import TritonBackend, TritonOps
from peltier_adapters.gpu.kernels.attention import NUM_ROW_WORDS
from peltier_adapters.gpu.kernels.pool import MODES, pool
from peltier_adapters.gpu.kernels.rows import Rows
from peltier_adapters.gpu.program_table import ProgramTable
from peltier_adapters.ops import choice
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.ops.op import Program
from peltier_adapters.residency.bank import Bank, Slot, head_spec


class Shape(NamedTuple):
    """The size of a batch: all tokens, all rows, the tokens of the longest row, and the banks of bodies and heads."""

    tokens: int
    rows: int
    longest: int
    bodies: frozenset[Bank]
    heads: frozenset[Bank]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self:
        """The smallest shape for `rows`."""
        lengths = [row.num_inputs for row in rows]
        bodies = frozenset(row.body for row in rows if row.body is not None)
        heads = frozenset(row.resident.head for row in rows if row.resident is not None)
        return cls(sum(lengths), len(rows), max(lengths), bodies, heads)

    @property
    def outputs(self) -> int:
        """The logits of the widest head that has a projection."""
        specs = (head_spec(bank) for bank in self.heads)
        return max((spec.outputs for spec in specs if spec.projection), default=1)

    @property
    def reads_tokens(self) -> bool:
        """Whether a head reads every token."""
        return any(head_spec(bank).pooling == "tokens" for bank in self.heads)

    @property
    def uses_pooler(self) -> bool:
        """Whether a head reads the backbone's pooler."""
        return any(head_spec(bank).pooling == "pooler" for bank in self.heads)

    @property
    def norms_heads(self) -> bool:
        """Whether a head has a norm."""
        return any(head_spec(bank).normed for bank in self.heads)

    def covers(self, other: Self) -> bool:
        """Whether a batch of shape `other` fits into this shape."""
        sizes = zip(self[:3], other[:3], strict=True)
        return all(own >= one for own, one in sizes) and self.bodies >= other.bodies and self.heads >= other.heads


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
        return self.ops.attention(layer).attend(
            query, key, value, size, self.placed, self.longest, self.num_heads, scale=size**-0.5
        )  # fmt: skip


class _NearLine:
    """What tokens attend to in local layers: those of their row that are at most `window` away. It is one line of
    biases for all heads and rows."""

    def __init__(self, window: int, longest: int, backbone: Backbone) -> None:
        line = torch.full((2 * longest - 1,), float("-inf"), device=backbone.device)
        line[max(longest - 1 - window, 0) : longest + window] = 0
        self._line, self._middle = line, line.data_ptr() + (longest - 1) * line.element_size()

    def place(self, places: Sequence[tuple[int, int, int, int]]) -> list[int]:
        """The words of rows, from their first query, the number of queries, their first key and the number of keys."""
        return [word for place in places for word in (*place, self._middle, 0, -1)]


class Frame:
    """The inputs and outputs of a batch of one shape. `load` writes the inputs of a batch that the shape covers, `run`
    computes the outputs only from these, and `read` returns them until the next `run`."""

    def __init__(self, backbone: Backbone, shape: Shape) -> None:
        self._backbone, self._shape = backbone, shape
        self._bodies, self._heads = (find_kernels(backbone, dtype) for dtype in (backbone.dtype, torch.float32))
        model = backbone.model
        self._line = _bias_line(model, shape.longest)
        self._near = _NearLine(model.config.window, shape.longest, backbone) if isinstance(model, ModernBert) else None
        self._indices = Indices(_sizes(shape, has_near_rows=self._near is not None), backbone.device)
        # The kernels are compiled for rows that are multiples of 16 apart.
        width = -(-shape.outputs // 16) * 16
        self._logits = torch.empty(shape.rows, width, device=backbone.device)
        self._token_logits = torch.empty(shape.tokens if shape.reads_tokens else 0, width, device=backbone.device)
        self._vectors = torch.empty(shape.rows, backbone.config.hidden_size, device=backbone.device)

    def load(self, rows: Sequence[Row]) -> None:
        """Write the inputs of a batch."""
        encoded = [row.prompted for row in rows]
        starts = [*accumulate(map(len, encoded), initial=0)]
        ids, types, positions = list_tokens(encoded, self._backbone.config)
        lengths = [len(one) - one.pads for one in encoded]
        places = list(zip(starts, map(len, encoded), starts, lengths, strict=False))
        residents = [row.resident for row in rows]
        kinds = [None if one is None else head_spec(one.head).pooling for one in residents]
        bases = [find_address(None if one is None else one.head_slot) for one in residents]
        programs = [self._heads.address(None if one is None else one.head.program) for one in residents]
        self._indices.fill({
            "ids": ids, "types": types, "positions": positions, "starts": starts, "units": range(len(rows) + 1),
            "placed": [word for place in places for word in PlacedRow(*place, self._line).layout()],
            "near": [] if self._near is None else self._near.place(places),
            "bases": [find_address(row.slot) for row in rows],
            "programs": [self._bodies.address(None if row.body is None else row.body.program) for row in rows],
            "head_bases": bases,
            "head_programs": [0 if kind == "tokens" else own for own, kind in zip(programs, kinds, strict=True)],
            "token_programs": [own if kind == "tokens" else 0 for own, kind in zip(programs, kinds, strict=True)],
            "modes": [MODES.get(kind or "", 0) for kind in kinds],
            "poolers": [kind == "pooler" for kind in kinds],
        })  # fmt: skip

    def run(self, groups: Sequence[AdapterGroup] = ()) -> None:
        """Compute the loaded batch. This neither waits for the device nor reads from the host, so it can be captured.
        `groups`, which cover the rows, may record gates."""
        indices, shape = self._indices, self._shape
        rows = Rows(indices["starts"], indices["bases"], indices["programs"], shape.longest)
        tables = self._bodies.tables(bank.program for bank in shape.bodies)
        ops = TritonOps(rows, tables, groups)
        hidden = self._encode(ops)
        pool(self._vectors, hidden, rows, indices["modes"])
        if shape.uses_pooler:
            chosen = indices["poolers"][:, None].bool()
            torch.where(chosen, self._pool(tables), self._vectors, out=self._vectors)
        heads = self._heads.tables(bank.program for bank in shape.heads)
        own = Rows(indices["units"], indices["head_bases"], indices["head_programs"], 1)
        self._read_heads(TritonOps(own, heads), self._logits, self._vectors)
        if shape.reads_tokens:
            own = Rows(indices["starts"], indices["head_bases"], indices["token_programs"], shape.longest)
            self._read_heads(TritonOps(own, heads), self._token_logits, hidden.float())

    def _read_heads(self, ops: TritonOps, logits: Tensor, x: Tensor) -> None:
        """Writes the logits of vectors x, one for each row or token."""
        ops.act("head", 0, logits.zero_(), x)
        if self._shape.norms_heads:
            add_normed(logits, x, ops, self._backbone)

    def _encode(self, ops: TritonOps) -> Tensor:
        """The states of the last layer, [tokens, hidden]."""
        indices, model, adaptation = self._indices, self._backbone.bert, SiteAdaptation(ops)
        read = _Read(indices["ids"], indices["types"], indices["positions"])
        if isinstance(model, Bert):
            return model.encode(read, adaptation, self._attention(ops, "placed"))
        return model.encode(read, adaptation, self._attention(ops, "placed"), self._attention(ops, "near"))

    def _attention(self, ops: TritonOps, rows: str) -> _Attention:
        placed = self._indices[rows].view(self._shape.rows, NUM_ROW_WORDS)
        return _Attention(ops, placed, self._shape.longest, self._backbone.config.num_heads)

    def _pool(self, tables: Mapping[Program, ProgramTable]) -> Tensor:
        pooler = self._backbone.bert.pooler
        assert pooler is not None, "artifacts that need a pooler are refused where there is none"
        rows = Rows(self._indices["units"], self._indices["bases"], self._indices["programs"], 1)
        scores = pooler(self._vectors.to(self._backbone.dtype))
        return torch.tanh(TritonOps(rows, tables).act("pooler", 0, scores, scores)).float()

    def read(self, rows: Sequence[Row]) -> list[Tensor]:
        """The outputs of each row, as `read_heads` returns them."""
        specs = [None if row.resident is None else head_spec(row.resident.head) for row in rows]
        given = any(spec is None or not spec.projection for spec in specs)
        found = torch.cat((self._logits, self._vectors), 1) if given else self._logits
        host, tokens = self._copy(found[: len(rows)])
        starts, width = accumulate((row.num_inputs for row in rows), initial=0), self._logits.shape[1]
        outputs = []
        for row, spec, own, start in zip(rows, specs, host, starts, strict=False):
            if spec is None or not spec.projection:
                outputs.append(own[width:])
            elif spec.pooling == "tokens":
                outputs.append(tokens[start : start + row.num_inputs, : spec.outputs].clone())
            else:
                outputs.append(own[: spec.outputs])
        return read_terms(rows, outputs, self._backbone, self._heads) if have_terms(rows) else outputs

    def _copy(self, found: Tensor) -> tuple[Tensor, Tensor]:
        """`found` and the logits of all tokens on the host, by one copy, so that the host waits for the device once."""
        tokens = self._token_logits
        if not self._shape.reads_tokens:
            return found.cpu(), tokens
        host = torch.cat((found.flatten(), tokens.flatten())).cpu()
        # Copied again, so that the outputs of rows do not keep the memory of all tokens' logits.
        return host[: found.numel()].view_as(found).clone(), host[found.numel() :].view_as(tokens)


def _bias_line(model: Model, longest: int) -> LineBias | None:
    """The biases by distance of tokens of one row, if the model has some."""
    if isinstance(model, Bert) and isinstance(model.positions, RelativePositions):
        return LineBias(model.positions.bias.line_around(longest))
    return None


def _sizes(shape: Shape, *, has_near_rows: bool) -> dict[str, int]:
    """The length of each index vector."""
    sizes = dict.fromkeys(("ids", "types", "positions"), shape.tokens)
    sizes |= dict.fromkeys(("starts", "units"), shape.rows + 1)
    sizes |= {"placed": NUM_ROW_WORDS * shape.rows, "near": NUM_ROW_WORDS * shape.rows if has_near_rows else 0}
    own = ("bases", "programs", "head_bases", "head_programs", "token_programs", "modes", "poolers")
    return sizes | dict.fromkeys(own, shape.rows)


def find_kernels(backbone: Backbone, dtype: torch.dtype) -> TritonBackend:
    """The kernels of a backbone whose batches are frames."""
    chosen = choice.choose_backend(backbone.device, dtype)
    assert isinstance(chosen, TritonBackend), "other backends compute no frames"
    return chosen


def find_address(slot: Slot | None) -> int:
    """The address of an adapter's weights; 0 without an adapter."""
    return 0 if slot is None else slot.read().data_ptr()
