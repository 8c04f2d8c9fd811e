"""The passes of a T5 on a GPU, each with one copy from the host (see `frame.py`).

`vectors` are all inputs of a pass. The caller copies those of one or two passes together and gives them to `run`, which
neither waits for the device nor reads from the host.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import NamedTuple

import torch
from peltier_backbone.attention.relative import RelativeBias
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import Cache, EncoderKV
from peltier_backbone.decoding.targets import ancestry
from peltier_backbone.native.rows import ROW_WORDS, PlacedRows
from torch import Tensor

from peltier_adapters.artifact.label_tree import LabelTree
from peltier_adapters.batch.adaptation import SiteAdaptation, find_prompts, write_prompts
from peltier_adapters.batch.indices import Indices, Values
from peltier_adapters.batch.row import Row, group_rows
from peltier_adapters.gpu.backend import TritonBackend, TritonOps
from peltier_adapters.gpu.frame import find_address, find_kernels
from peltier_adapters.gpu.kernels.attention import NUM_ROW_WORDS, Attention
from peltier_adapters.gpu.kernels.rows import Rows
from peltier_adapters.ops.backend import AdapterGroup

_BIAS_BYTES = 4
_BIAS, _BIAS_HEAD = ROW_WORDS.index("bias"), ROW_WORDS.index("bias_head")


class RowVectors:
    """The adapters of `rows`, each of which is repeated `counts` times."""

    def __init__(self, kernels: TritonBackend, rows: Sequence[Row], counts: Sequence[int]) -> None:
        repeats = torch.tensor(counts)
        programs = [None if row.body is None else row.body.program for row in rows]
        self.tables = kernels.tables(programs)
        self.bases = torch.tensor([find_address(row.slot) for row in rows]).repeat_interleave(repeats)
        self.programs = torch.tensor([kernels.address(one) for one in programs]).repeat_interleave(repeats)


class Places(NamedTuple):
    """Where rows of at most `longest` queries and their keys lie, [rows * 7] on the device."""

    words: Tensor
    longest: int
    num_heads: int

    def from_head(self, first: int) -> "Places":
        """The places with the biases of the heads from `first` on."""
        if first == 0:
            return self
        words = self.words.view(-1, NUM_ROW_WORDS).clone()
        words[:, _BIAS] += first * _BIAS_BYTES * words[:, _BIAS_HEAD]
        return self._replace(words=words)

    def attend(self, kernels: Attention, query: Tensor, key: Tensor, value: Tensor, head_stride: int) -> Tensor:
        """The context of the queries, with the prefixes of their adapters."""
        layout = self.words.view(-1, NUM_ROW_WORDS)
        return kernels.attend(query, key, value, head_stride, layout, self.longest, self.num_heads)

    def attend_packed(self, kernels: Attention, qkv: Tensor) -> Tensor:
        """The same of queries, keys and values [tokens, 3 * attention]."""
        query, key, value = qkv.chunk(3, -1)
        return self.attend(kernels, query, key, value, query.shape[1] // self.num_heads)


@dataclass(frozen=True)
class _RowView:
    """Each token sees its whole row."""

    ops: TritonOps
    rows: Places
    bias: RelativeBias

    def attend_self(self, layer: int, number: int, x: Tensor, qkv: Tensor) -> Tensor:
        return self.rows.from_head(self.bias.first_head(layer)).attend_packed(self.ops.attention(number), qkv)


class EncoderPass:
    """Encodes `rows`, which are in `Row.order`, and projects the keys and values of every cross-attention. `groups`,
    which cover the rows, may record gates."""

    def __init__(self, backbone: Backbone, rows: Sequence[Row], groups: Sequence[AdapterGroup]) -> None:
        self._backbone, self._groups = backbone, groups
        encoded = [row.prompted for row in rows]
        self.lengths = tuple(map(len, encoded))
        self.starts = tuple(accumulate(self.lengths, initial=0))
        self._adapters = RowVectors(find_kernels(backbone, backbone.dtype), rows, [1] * len(rows))
        self._line = backbone.t5.encoder.bias.line_around(max(self.lengths))
        places, self._prompts = find_prompts(groups, self.lengths)
        self.vectors: dict[str, Values] = {
            "ids": list(chain.from_iterable(one.ids for one in encoded)), "starts": self.starts,
            "bases": self._adapters.bases, "programs": self._adapters.programs, "rows": self._place(),
            "prompts": places,
        }  # fmt: skip

    def run(self, indices: Indices) -> EncoderKV:
        """The keys and values, from the copied `vectors`."""
        model, longest = self._backbone.t5, max(self.lengths)
        rows = Rows(indices["starts"], indices["bases"], indices["programs"], longest)
        ops = TritonOps(rows, self._adapters.tables, self._groups)
        adaptation = SiteAdaptation(ops)
        x = model.embedding(indices["ids"])
        if self._prompts:
            x = write_prompts(x, indices["prompts"], self._prompts)
        view = _RowView(ops, Places(indices["rows"], longest, model.config.num_heads), model.encoder.bias)
        states = model.encoder.run(x, view, adaptation)
        return model.project_kv(self, states, adaptation)

    def _place(self) -> list[int]:
        """The bias of key k of query q is that of the relative position k - q, from the middle of a line on."""
        line = self._line
        middle = line.data_ptr() + line.shape[1] // 2 * line.element_size()
        pairs = zip(self.starts, self.lengths, strict=False)
        return [word for start, own in pairs for word in (start, own, start, own, middle, line.shape[1], -1)]


@dataclass(frozen=True)
class _NodeView:
    """Each node of a tree of tokens sees its ancestors, and an encoded row."""

    ops: TritonOps
    own: Places
    cross: Places
    memory: EncoderKV
    bias: RelativeBias

    def attend_self(self, layer: int, number: int, x: Tensor, qkv: Tensor) -> Tensor:
        return self.own.from_head(self.bias.first_head(layer)).attend_packed(self.ops.attention(number), qkv)

    def attend_cross(self, layer: int, number: int, x: Tensor, query: Tensor) -> Tensor:
        key, value = self.memory.key_values[layer].chunk(2, -1)
        head_stride = query.shape[1] // self.cross.num_heads
        return self.cross.attend(self.ops.attention(number), query, key, value, head_stride)


class TreePass:
    """Computes the next-token logits of the nodes of `trees`, one tree for each of `rows`, which `encoder` encodes.
    Each node is one row of the adaptation."""

    def __init__(
        self, backbone: Backbone, rows: Sequence[Row], trees: Sequence[LabelTree], encoder: EncoderPass
    ) -> None:
        self._backbone, self._lengths = backbone, [len(tree.ids) for tree in trees]
        self._adapters = RowVectors(find_kernels(backbone, backbone.dtype), rows, self._lengths)
        self._line = backbone.t5.decoder.bias.columns
        parents = [tuple(tree.parents) for tree in trees]
        positions = [self._positions(ancestry(one)).flatten() for one in dict.fromkeys(parents)]
        starts = dict(zip(dict.fromkeys(parents), accumulate(map(len, positions), initial=0), strict=False))
        # It is filled after its address has been copied.
        self._biases = self._line.new_empty(len(self._line), sum(map(len, positions)))
        num_nodes = sum(self._lengths)
        self.vectors: dict[str, Values] = {
            "node_ids": list(chain.from_iterable(tree.ids for tree in trees)),
            "nodes": torch.arange(num_nodes + 1),
            "node_bases": self._adapters.bases, "node_programs": self._adapters.programs,
            "biases": torch.cat(positions),
            "own": self._place_own([starts[one] for one in parents]),
            "cross": self._place_cross(encoder),
        }  # fmt: skip

    def run(self, indices: Indices, memory: EncoderKV) -> Tensor:
        """The logits [nodes, vocab], from the copied `vectors`."""
        model = self._backbone.t5
        torch.index_select(self._line, 1, indices["biases"], out=self._biases)
        rows = Rows(indices["nodes"], indices["node_bases"], indices["node_programs"], 1)
        ops = TritonOps(rows, self._adapters.tables)
        adaptation = SiteAdaptation(ops)
        own, cross = (Places(indices[name], 1, model.config.num_heads) for name in ("own", "cross"))
        view = _NodeView(ops, own, cross, memory, model.decoder.bias)
        hidden = model.decoder.run(model.embedding(indices["node_ids"]), view, adaptation)
        return model.logits(hidden, adaptation)

    def _positions(self, seen: Tensor) -> Tensor:
        """For each node and each other one the place of their bias in the line, [nodes, nodes]. The last place has that
        of later tokens, -inf."""
        bias = self._backbone.t5.decoder.bias
        depths = seen.sum(-1)
        last = len(bias.line) - 1
        places = (depths[None, :] - depths[:, None] - bias.first).clamp(0, last)
        return places.masked_fill(~seen, last)

    def _place_own(self, starts: Sequence[int]) -> Tensor:
        """`starts` has the first bias of each tree, and each node the biases of its tree's nodes."""
        firsts, own = torch.tensor([*accumulate(self._lengths[:-1], initial=0)]), torch.tensor(self._lengths)
        first, keys, start = (one.repeat_interleave(own) for one in (firsts, own, torch.tensor(starts)))
        element = start + (torch.arange(len(first)) - first) * keys
        addresses = self._biases.data_ptr() + element * self._biases.element_size()
        return _place_single(first, keys, addresses, self._biases.shape[1])

    def _place_cross(self, encoder: EncoderPass) -> Tensor:
        pairs = torch.tensor([encoder.starts[:-1], encoder.lengths])
        first, keys = pairs.repeat_interleave(torch.tensor(self._lengths), 1)
        return _place_single(first, keys, torch.zeros_like(first), 0)


def _place_single(offsets: Tensor, keys: Tensor, biases: Tensor, bias_head: int) -> Tensor:
    """The places [rows * 7] of single queries, of which query r sees `keys[r]` keys from number `offsets[r]` on."""
    zeros = torch.zeros_like(keys)
    columns = torch.arange(len(keys)), zeros + 1, offsets, keys, biases, zeros + bias_head, zeros
    return torch.stack(columns, 1).flatten()


def read_trees(
    backbone: Backbone, rows: Sequence[Row], groups: Sequence[AdapterGroup], trees: Sequence[LabelTree],
    more: Mapping[str, Values],
) -> tuple[Tensor, Indices]:  # fmt: skip
    """The next-token logits of all nodes of `trees`, [nodes, vocab], and the vectors on the device, of which `more` are
    the caller's."""
    encoder = EncoderPass(backbone, rows, groups)
    decoder = TreePass(backbone, rows, trees, encoder)
    indices = Indices.of({**encoder.vectors, **decoder.vectors, **more}, backbone.device)
    return decoder.run(indices, encoder.run(indices)), indices


def join_frame(backbone: Backbone, rows: Sequence[Row], copies: Sequence[int], cache: Cache) -> list[list[int]]:
    """See `Runner`."""
    encoder = EncoderPass(backbone, rows, group_rows(rows, record_gates=False))
    with cache.admit(encoder.lengths, copies) as arrival:
        vectors: dict[str, Values] = {"slots": arrival.slots, "numbers": arrival.numbers}
        if arrival.tokens is not None:
            vectors["tokens"] = arrival.tokens
        indices = Indices.of(encoder.vectors | vectors, backbone.device)
        tokens = None if arrival.tokens is None else indices["tokens"]
        cache.keep(encoder.run(indices), indices["slots"], indices["numbers"], tokens)
        return arrival.by_row()


class FrameSteps:
    """Implements `Steps`, and the view of its decoder."""

    def __init__(self, backbone: Backbone, rows: Sequence[Row], slots: Sequence[int], cache: Cache) -> None:
        self._backbone, self._slots, self._cache = backbone, slots, cache
        own = RowVectors(find_kernels(backbone, backbone.dtype), rows, [1] * len(rows))
        memory = cache.memory
        cross = PlacedRows.tokens(memory.first_keys(slots), [memory.lengths[slot] for slot in slots])
        self._fixed: dict[str, Values] = {
            "starts": range(len(rows) + 1), "bases": own.bases, "programs": own.programs,
            "cross": cross.layout.flatten(),
        }  # fmt: skip
        sizes = {name: len(values) for name, values in self._fixed.items()}
        sizes |= {"tokens": len(rows), "numbers": len(rows), "own": NUM_ROW_WORDS * len(rows)}
        indices = self._indices = Indices(sizes, backbone.device)
        placed = Rows(indices["starts"], indices["bases"], indices["programs"], 1)
        self._ops = TritonOps(placed, own.tables)
        self._adaptation = SiteAdaptation(self._ops)

    def __call__(self, tokens: Sequence[int]) -> Tensor:
        """See `Steps`. Call it only after the logits of the previous call have been read."""
        model, own, slots = self._backbone.t5, self._cache.own, self._slots
        lengths = [own.lengths[slot] for slot in slots]
        own.reserve(max(slots) + 1, max(lengths) + 1)
        first = own.first_keys(slots)
        line = model.decoder.bias.line_before(own.data.shape[4])
        placed = PlacedRows.tokens(first, [length + 1 for length in lengths], line)
        numbers = [key + length for key, length in zip(first, lengths, strict=True)]
        self._indices.fill(
            self._fixed | {"tokens": tokens, "numbers": numbers, "own": placed.layout.flatten()}
        )  # fmt: skip
        hidden = model.decoder.run(model.embedding(self._indices["tokens"]), self, self._adaptation)
        own.grow(slots)
        return model.logits(hidden, self._adaptation)

    def attend_self(self, layer: int, number: int, x: Tensor, qkv: Tensor) -> Tensor:
        size = qkv.shape[1] // 3
        self._cache.own.write(layer, qkv[:, size:], self._indices["numbers"])
        places = self._places("own").from_head(self._backbone.t5.decoder.bias.first_head(layer))
        return _attend(self._ops.attention(number), qkv[:, :size], self._cache.own.data[layer], places)

    def attend_cross(self, layer: int, number: int, x: Tensor, query: Tensor) -> Tensor:
        return _attend(self._ops.attention(number), query, self._cache.memory.data[layer], self._places("cross"))

    def _places(self, name: str) -> Places:
        return Places(self._indices[name], 1, self._backbone.config.num_heads)


def _attend(kernels: Attention, query: Tensor, store: Tensor, places: Places) -> Tensor:
    """`store` is [2, slots, heads, width, head size]."""
    width, size = store.shape[3:]
    key, value = store.view(2, -1, size).unbind()
    return places.attend(kernels, query, key, value, width * size)
