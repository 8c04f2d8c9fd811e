"""The native kernels of one level. `choice.py` chooses the level."""

from ctypes import Structure
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from peltier_backbone.native.interface import INTERFACE, open_functions
from peltier_backbone.native.packed import PackedInt8, PackedWeight
from peltier_backbone.native.program import ACTIVATIONS
from peltier_backbone.native.rows import NO_TABLE, PlacedOps, StackRows, Table
from peltier_backbone.native.stack import NativeStack

_MultiplyCall, _MultiplyInt8Call, _RowsInt8Call, _AdaptCall, _NormCall, _LikeliestCall = (
    INTERFACE.structs[f"{name}_call"]
    for name in ("multiply", "multiply_int8", "rows_int8", "adapt", "norm", "likeliest")
)
_Matrix = INTERFACE.structs["matrix"]
_NO_MATRIX = _Matrix()

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
    processor `runs` them. Without torch's OpenMP library each call runs in one thread (`has_threads`)."""

    def __init__(self, path: Path) -> None:
        self.functions = open_functions(path)
        self.name = path.stem
        self.runs = bool(self.functions.peltier_runs())
        self.has_threads = bool(self.functions.peltier_has_threads())
        self._panel: int = self.functions.peltier_panel()
        self._panel_int8: int = self.functions.peltier_panel_int8()

    def pack(self, weight: Tensor) -> PackedWeight:
        """`weight` [outer, inner] as `multiply` takes it."""
        return PackedWeight.pack(weight, self._panel)

    def multiply(
        self, x: Tensor, weight: PackedWeight, bias: Tensor | None, activation: str = "none"
    ) -> Tensor:  # fmt: skip
        """act(x W^T + bias) of x [rows, inner], in one dtype with the weight: [rows, outer]. The bias [outer] is
        float32."""
        rows, inner = x.shape
        assert (inner, x.dtype) == (weight.inner, weight.data.dtype), "rows fit the weight"
        x = _with_contiguous_rows(x)
        y, half = x.new_empty(rows, weight.outer), is_half(x)
        call = _MultiplyCall(
            y=(y.data_ptr(), weight.outer, half), x=(x.data_ptr(), x.stride(0), half), w=weight.data.data_ptr(),
            rows=rows, inner=inner, outer=weight.outer, activation=ACTIVATIONS[activation],
        )  # fmt: skip
        if bias is not None:
            call.bias = bias.data_ptr()
        if self.functions.peltier_multiply(call):
            raise MemoryError(f"no memory for a product of {rows} rows")
        return y

    def adapt(
        self, y: Tensor, x: Tensor, residual: Tensor | None, table: Table, place: int, gates: Tensor
    ) -> None:  # fmt: skip
        """Add to y, in place, the changes of all groups of `table` at `place`; y may be x. The kernel writes the gates
        of the place's op k to row k of `gates`, [at least `table.max_ops`, rows] in float32."""
        own = x.data_ptr(), x.stride(0), _DTYPES[x.dtype]
        call = _AdaptCall(
            y=own if y is x else (y.data_ptr(), y.stride(0), _DTYPES[y.dtype]), x=own, width=x.size(1), place=place,
            table=table.layout, gates=gates.data_ptr(),
        )  # fmt: skip
        if residual is not None:
            call.residual = as_matrix(residual)
        if self.functions.peltier_adapt(call):
            raise MemoryError(f"no memory for what adapters do with {len(x)} tokens")

    def pack_int8(self, values: Tensor, scales: Tensor, bias: Tensor | None = None) -> PackedInt8:
        """The map of the weight `values` [outer, inner] times `scales` [outer], as `multiply_int8` takes it."""
        return PackedInt8.pack(values, scales, bias, self._panel_int8)

    def multiply_int8(self, x: Tensor, weight: PackedInt8, activation: str = "none") -> Tensor:
        """act(x W^T + bias) of x [rows, inner] in float32, each row quantised with its own range: [rows, outer]. Sums
        are exact."""
        assert (x.shape[1], x.dtype) == (weight.inner, torch.float32), "rows fit the weight"
        x = _with_contiguous_rows(x)
        y = x.new_empty(len(x), weight.outer)
        call = _MultiplyInt8Call(
            y=as_matrix(y), x=as_matrix(x), w=weight.address, rows=len(x), activation=ACTIVATIONS[activation]
        )
        if self.functions.peltier_multiply_int8(call):
            raise MemoryError(f"no memory for a product of {len(x)} rows")
        return y

    def rows_int8(self, weight: PackedInt8, ids: Tensor) -> Tensor:
        """The rows `ids` [*ids] (int64) of the map's weight, [*ids, inner] in float32."""
        ids = ids.contiguous()
        y = torch.empty(*ids.shape, weight.inner)
        call = _RowsInt8Call(y=y.data_ptr(), numbers=ids.data_ptr(), rows=ids.numel(), w=weight.address)
        if self.functions.peltier_rows_int8(call):
            raise IndexError(f"rows of a weight are numbered from 0 to {weight.outer - 1}")
        return y

    def norm(
        self, x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor | None, kind: NormKind,
        table: Table | None = None, index: int = 0,
    ) -> Tensor:  # fmt: skip
        """The norm of x [rows, width], or of x + `residual`, which then replaces x. A group of `table` with its own
        weights of norm `index` uses these, others use `weight` and `bias` [width], which have one dtype. x and the
        residual have one dtype too."""
        y, more = (torch.empty_like(x), _NO_MATRIX) if residual is None else (x, as_matrix(residual))
        tokens, width = x.shape
        call = _NormCall(
            norm=(as_matrix(y), as_matrix(x), more, width, kind.eps, kind.centered), weight=weight.data_ptr(),
            bias=None if bias is None else bias.data_ptr(), weights_half=is_half(weight), tokens=tokens, index=index,
            table=NO_TABLE if table is None else table.layout,
        )  # fmt: skip
        if self.functions.peltier_norm(call):
            raise MemoryError(f"no memory for a norm of width {width}")
        return y

    def run_stack(self, stack: NativeStack, x: Tensor, rows: StackRows, ops: PlacedOps) -> Tensor:
        """All layers of `stack`, and its final norm if it has one, of x [tokens, hidden], with the adapters' `ops`."""
        x = x.contiguous()
        y = torch.empty_like(x)
        if self.functions.peltier_stack(stack.layout, rows.call(x, y, ops)):
            raise MemoryError(f"no memory for the layers of {len(x)} tokens")
        return y

    def likeliest(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The number of the largest of each row of `logits` in float32, and the logarithm of its softmax."""
        rows, width = logits.shape
        tokens, log_probs = torch.empty(rows, dtype=torch.int64), torch.empty(rows)
        call = _LikeliestCall(
            logits=logits.data_ptr(), stride=logits.stride(0), rows=rows, width=width,
            tokens=tokens.data_ptr(), log_probabilities=log_probs.data_ptr(),
        )  # fmt: skip
        self.functions.peltier_likeliest(call)
        return tokens, log_probs


def is_half(tensor: Tensor) -> bool:
    """Whether rows are bfloat16."""
    return _DTYPES[tensor.dtype]


def as_matrix(tensor: Tensor) -> Structure:
    """Rows as the kernels read them."""
    return _Matrix(tensor.data_ptr(), tensor.stride(0), is_half(tensor))


def _with_contiguous_rows(x: Tensor) -> Tensor:
    return x if x.stride(1) == 1 else x.contiguous()


def knows(dtype: torch.dtype) -> bool:
    """Whether the kernels take rows of this dtype."""
    return dtype in _DTYPES
