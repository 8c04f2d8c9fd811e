"""The native kernels of one level. `choice.py` chooses the level."""

from ctypes import addressof
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from peltier_backbone.native.packed import PackedWeight
from peltier_backbone.native.packed_int8 import PackedInt8
from peltier_backbone.native.placed_rows import PlacedRows
from peltier_backbone.native.program import ACTIVATIONS, Activation, PlacedOps, PlacedPrefixes, Table
from peltier_backbone.native.signatures import open_functions
from peltier_backbone.native.stack import NativeStack, StackRows

# The dtypes of rows, and whether each is bfloat16.
_DTYPES = {torch.float32: False, torch.bfloat16: True}


class NormKind(Protocol):
    """A layer norm (`centered`) or an RMS norm."""

    @property
    def eps(self) -> float: ...

    @property
    def centered(self) -> bool: ...


class Library:
    """The kernels, called with tensors on the CPU. Rows are float32 or bfloat16, and each row is contiguous; weights
    are float32; sums are in float32, and a result is rounded once. A row's result depends only on that row and on the
    weights of its group, to the last bit. The kernels record nothing for a backward pass. Call them only if this
    processor `runs` them."""

    def __init__(self, path: Path) -> None:
        self._c = open_functions(path)
        self.name = path.stem
        self.runs = bool(self._c.peltier_runs())
        self._panel: int = self._c.peltier_panel()
        self._panel_int8: int = self._c.peltier_panel_int8()

    def pack(self, weight: Tensor) -> PackedWeight:
        """`weight` [outer, inner] as `multiply` takes it."""
        return PackedWeight.pack(weight, self._panel)

    def multiply(
        self, x: Tensor, weight: PackedWeight, bias: Tensor | None, activation: Activation = "none"
    ) -> Tensor:  # fmt: skip
        """act(x W^T + bias) of x [rows, inner], in one dtype with the weight: [rows, outer]. The bias [outer] is
        float32."""
        assert (x.shape[1], x.dtype) == (weight.inner, weight.data.dtype), "rows fit the weight"
        x = _with_contiguous_rows(x)
        y = x.new_empty(len(x), weight.outer)
        failed = self._c.peltier_multiply(
            y.data_ptr(), y.stride(0), *_rows(x), weight.data.data_ptr(), None if bias is None else bias.data_ptr(),
            *x.shape, weight.outer, ACTIVATIONS[activation],
        )  # fmt: skip
        if failed:
            raise MemoryError(f"no memory for a product of {len(x)} rows")
        return y

    def adapt(
        self, y: Tensor, x: Tensor, residual: Tensor | None, table: Table, place: int, gates: Tensor
    ) -> None:  # fmt: skip
        """Add to y, in place, the changes of all groups of `table` at `place`; y may be x. The kernel writes the gates
        of the place's op k to row k of `gates`, [at least `table.max_ops`, rows] in float32."""
        more, stride = (None, 0) if residual is None else (residual.data_ptr(), residual.stride(0))
        failed = self._c.peltier_adapt(
            *_rows(y), *_rows(x), more, stride, x.shape[1], *table.arguments, place, gates.data_ptr()
        )  # fmt: skip
        if failed:
            raise MemoryError(f"no memory for what adapters do with {len(x)} tokens")

    def pack_int8(self, values: Tensor, scales: Tensor, bias: Tensor | None = None) -> PackedInt8:
        """The map of the weight `values` [outer, inner] times `scales` [outer], as `multiply_int8` takes it."""
        return PackedInt8.pack(values, scales, bias, self._panel_int8)

    def multiply_int8(self, x: Tensor, weight: PackedInt8, activation: Activation = "none") -> Tensor:
        """act(x W^T + bias) of x [rows, inner] in float32, each row quantised with its own range: [rows, outer]. Sums
        are exact."""
        assert (x.shape[1], x.dtype) == (weight.inner, torch.float32), "rows fit the weight"
        x = _with_contiguous_rows(x)
        y = x.new_empty(len(x), weight.outer)
        failed = self._c.peltier_multiply_int8(
            y.data_ptr(), y.stride(0), x.data_ptr(), x.stride(0), len(x), weight.address, ACTIVATIONS[activation]
        )
        if failed:
            raise MemoryError(f"no memory for a product of {len(x)} rows")
        return y

    def rows_int8(self, weight: PackedInt8, ids: Tensor) -> Tensor:
        """The rows `ids` [*ids] (int64) of the map's weight, [*ids, inner] in float32."""
        ids = ids.contiguous()
        y = torch.empty(*ids.shape, weight.inner)
        if self._c.peltier_rows_int8(y.data_ptr(), ids.data_ptr(), ids.numel(), weight.address):
            raise IndexError(f"rows of a weight are numbered from 0 to {weight.outer - 1}")
        return y

    def feed_forward_int8(
        self, x: Tensor, expand: PackedInt8, contract: PackedInt8, activation: Activation, *, gated: bool = False
    ) -> Tensor:  # fmt: skip
        """`contract` of act(`expand` of x [rows, hidden]), as the single products and `activate` compute it."""
        assert (x.shape[1], x.dtype) == (expand.inner, torch.float32), "rows fit the first weight"
        x = _with_contiguous_rows(x)
        y = x.new_empty(len(x), contract.outer)
        failed = self._c.peltier_feed_forward_int8(
            y.data_ptr(), y.stride(0), x.data_ptr(), x.stride(0), len(x), expand.address, contract.address,
            ACTIVATIONS[activation], gated,
        )  # fmt: skip
        if failed:
            raise MemoryError(f"no memory for a feed-forward of {len(x)} rows")
        return y

    def activate(self, x: Tensor, activation: Activation, *, gated: bool = False) -> Tensor:
        """x [rows, width] activated in place; if `gated`, the first half of its columns times the second half."""
        width = x.shape[1] // (2 if gated else 1)
        self._c.peltier_activate(*_rows(x), len(x), width, ACTIVATIONS[activation], gated)
        return x[:, :width]

    def norm(
        self, x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor | None, kind: NormKind,
        table: Table | None = None, index: int = 0,
    ) -> Tensor:  # fmt: skip
        """The norm of x [rows, width], or of x + `residual`, which then replaces x. A group of `table` with its own
        weights of norm `index` uses these, others use `weight` and `bias` [width], which have one dtype. x and the
        residual have one dtype too."""
        y, more, stride = torch.empty_like(x), None, 0
        if residual is not None:
            y, more, stride = x, residual.data_ptr(), residual.stride(0)
        failed = self._c.peltier_norm(
            y.data_ptr(), x.data_ptr(), more, y.stride(0), x.stride(0), stride, _is_half(x), weight.data_ptr(),
            None if bias is None else bias.data_ptr(), _is_half(weight), *x.shape, kind.eps, kind.centered,
            *((None, 0, None) if table is None else table.arguments), index,
        )  # fmt: skip
        if failed:
            raise MemoryError(f"no memory for a norm of width {x.shape[1]}")
        return y

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, head_stride: int, rows: PlacedRows, num_heads: int,
        prefixes: PlacedPrefixes | None = None, *, scale: float = 1.0, once: bool = False, rounded: bool = False,
        window: int | None = None,
    ) -> Tensor:  # fmt: skip
        """The softmax attention of `query` [tokens, size] to keys and values of one layout. Their first dimension
        counts keys, and those of the next head lie `head_stride` elements further on. Products of queries and keys are
        times `scale`. If there are prefixes, their table has these rows, and their bias is 0. `once`: each row has one
        query, whose result is rounded in another order. `rounded`: products may be of bfloat16, as they are of queries
        in it; sums are float32. With a `window` (at least 1) a query sees the prefix and the keys of its row that are
        at most so many tokens away; rows then have as many keys as queries."""
        context, size = query.new_empty(len(query), query.shape[1]), query.shape[1] // num_heads
        table = (None, 0, None) if prefixes is None else prefixes.table.arguments
        place, gates = (0, None) if prefixes is None else (prefixes.place, prefixes.gates)
        failed = self._c.peltier_attend(
            context.data_ptr(), context.stride(0), *_rows(query), key.data_ptr(), value.data_ptr(), key.stride(0),
            _is_half(key), head_stride, rows.layout.data_ptr(), len(rows), num_heads, size, scale, once, rounded,
            window or 0, *table, place, None if gates is None else gates.data_ptr(),
        )  # fmt: skip
        if failed:
            raise MemoryError(f"no memory for attention over {len(rows)} rows")
        return context

    def rotate(self, x: Tensor, turns: Tensor, positions: Tensor, num_heads: int) -> None:
        """Turn the first `num_heads` heads of each row of x [tokens, width] in place by the angles of its position:
        `turns` [positions, head size] has their cosines, then their sines, `positions` is int64 [tokens]."""
        self._c.peltier_rotate(*_rows(x), turns.data_ptr(), positions.data_ptr(), len(x), num_heads, turns.shape[1])

    def keep_keys(self, store: Tensor, key_value: Tensor, places: Tensor) -> None:
        """Write the keys and values of each row of `key_value` [rows, 2 * heads * size] to `store` [2, slots, heads,
        width, size]. Row r becomes key number `places[r]` (int64), counted over slots and heads."""
        _, _, heads, width, size = store.shape
        self._c.peltier_keep_keys(
            store[0].data_ptr(), store[1].data_ptr(), _is_half(store), width * size, *_rows(key_value),
            places.data_ptr(), len(places), heads, size,
        )  # fmt: skip

    def run_stack(self, stack: NativeStack, x: Tensor, rows: StackRows, ops: PlacedOps) -> Tensor:
        """All layers of `stack`, and its final norm if it has one, of x [tokens, hidden], with the adapters' `ops`."""
        x = _with_contiguous_rows(x)
        y = torch.empty_like(x)
        call = stack.place(x, y, rows, ops)
        if self._c.peltier_stack(addressof(stack.layout), addressof(call)):
            raise MemoryError(f"no memory for the layers of {len(x)} tokens")
        return y

    def likeliest(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The number of the largest of each row of `logits` in float32, and the logarithm of its softmax."""
        tokens, log_probs = torch.empty(len(logits), dtype=torch.int64), torch.empty(len(logits))
        self._c.peltier_likeliest(
            logits.data_ptr(), logits.stride(0), *logits.shape, tokens.data_ptr(), log_probs.data_ptr()
        )  # fmt: skip
        return tokens, log_probs


def _is_half(tensor: Tensor) -> bool:
    return _DTYPES[tensor.dtype]


def _rows(tensor: Tensor) -> tuple[int, int, bool]:
    return tensor.data_ptr(), tensor.stride(0), _is_half(tensor)


def _with_contiguous_rows(x: Tensor) -> Tensor:
    return x if x.stride(1) == 1 else x.contiguous()


def knows(dtype: torch.dtype) -> bool:
    """Whether the kernels take rows of this dtype."""
    return dtype in _DTYPES
