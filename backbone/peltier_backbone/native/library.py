"""The native kernels of this machine, which is chosen and checked once, before anything is served."""

import ctypes
import hashlib
import logging
from collections.abc import Sequence
from ctypes import c_float, c_int, c_int64, c_void_p
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor

_FOLDER = Path(__file__).parent
# What torch calls the vector units of a processor, and the library that was compiled for them.
_LEVELS = {"AVX512": "avx512", "AVX2": "avx2"}
_TENSOR = (c_void_p, c_int64, c_int)  # data, elements between rows, whether bfloat16
_WEIGHT = (c_void_p, c_int64, c_int64)  # data, elements between rows and between groups
_VECTOR = (c_void_p, c_int64)  # data, elements between groups
_RUNS = (c_void_p, c_int64)  # starts, groups

# What rows may be, and whether that is bfloat16.
_DTYPES = {torch.float32: False, torch.bfloat16: True}

Activation = Literal["none", "relu", "swish", "gelu_new", "gelu"]
ACTIVATIONS: dict[Activation, int] = {"none": 0, "relu": 1, "swish": 2, "gelu_new": 3, "gelu": 4}
_log = logging.getLogger(__name__)


class NormKind(Protocol):
    """A layer norm (`centered`) or an RMS norm."""

    @property
    def eps(self) -> float: ...

    @property
    def centered(self) -> bool: ...


class Steps(Protocol):
    """A `Chain`, as the kernels are told."""

    @property
    def address(self) -> int: ...

    @property
    def count(self) -> int: ...


class Runs:
    """Neighbouring runs of `lengths` rows, as the kernels are told."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.count = len(lengths)
        self._starts = (c_int64 * (self.count + 1))(*accumulate(lengths, initial=0))
        self.address = ctypes.addressof(self._starts)


class Library:
    """The kernels by tensors on the CPU. Rows are float32 or bfloat16 and what a row holds lies side by side; weights
    are float32; sums are in float32, and an answer is rounded once. What a row gets depends on nothing but that row
    and its group's weights, to the last bit. Nothing is recorded for a backward pass."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        library.peltier_sources.restype = ctypes.c_char_p
        if library.peltier_sources().decode() != _digest():
            raise OSError(f"{path.name} was built from other sources than the ones beside it")
        self.name = path.stem
        self._linear = library.peltier_linear
        self._linear.argtypes = (
            *_TENSOR, *_TENSOR, *_WEIGHT, *_VECTOR, c_void_p, *_RUNS, c_int64, c_int64, c_int64, c_int, c_int,
        )  # fmt: skip
        self._chain = library.peltier_chain
        self._chain.argtypes = (*_TENSOR, *_TENSOR, c_void_p, c_int64, c_int64, c_void_p, *_RUNS)
        self._add = library.peltier_add
        self._add.argtypes = (*_TENSOR, *_VECTOR, *_RUNS, c_int64)
        self._add.restype = None
        self._gate = library.peltier_gate
        self._gate.argtypes = (c_void_p, *_TENSOR, *_VECTOR, *_VECTOR, *_RUNS, c_void_p, c_int64)
        self._gate.restype = None
        self._norm = library.peltier_norm
        self._norm.argtypes = (
            *(c_void_p,) * 3, *(c_int64,) * 3, c_int, *_VECTOR, *_VECTOR, c_int, *_RUNS, c_int64, c_float, c_int,
        )  # fmt: skip
        self._attend = library.peltier_attend
        self._attend.argtypes = (
            c_void_p, c_int64, *_TENSOR, c_void_p, c_void_p, c_int64, c_int, c_void_p, c_void_p, *(c_int64,) * 3,
        )  # fmt: skip

    def linear(
        self, y: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, runs: Runs, *, fold: int = 1,
        scale: Tensor | None = None, activation: Activation = "none", add: bool = False,
    ) -> None:  # fmt: skip
        """Write act(x W + b) * scale to y, or add it: x [rows * fold, in], `weight` [groups, in, out], `bias`
        [groups, out], `scale` [rows * fold, 1], all of a run's rows with its group's weights."""
        weight = side_by_side(weight)
        _, inner, outer = weight.shape
        group, row, _ = weight.stride()
        failed = self._linear(
            *_rows(y), *_rows(side_by_side(x)), weight.data_ptr(), row, group, *_vectors(bias),
            None if scale is None else scale.data_ptr(), runs.address, runs.count, fold, inner, outer,
            ACTIVATIONS[activation], add,
        )  # fmt: skip
        if failed:
            raise MemoryError(f"no memory for a product of {inner} by {outer}")

    def chain(self, y: Tensor, x: Tensor, steps: Steps, layer: int, runs: Runs, scale: Tensor | None) -> None:
        """See `Chain.add`."""
        failed = self._chain(
            *_rows(y), *_rows(x), steps.address, steps.count, layer, None if scale is None else scale.data_ptr(),
            runs.address, runs.count,
        )  # fmt: skip
        if failed:
            raise MemoryError(f"no memory for {steps.count} products")

    def add(self, y: Tensor, bias: Tensor, runs: Runs) -> None:
        """y [rows, width] += bias [groups, width], in place."""
        self._add(*_rows(y), *_vectors(bias), runs.address, runs.count, y.shape[1])

    def gate(self, x: Tensor, weight: Tensor, bias: Tensor, rows: Runs, groups: Tensor) -> Tensor:
        """The mean over each row's tokens of sigmoid(x w + b), [rows, 1] in float32: x [tokens, in], `weight`
        [groups, in], `bias` [groups], `groups` [rows] in int64."""
        gates = torch.empty(rows.count, 1)
        self._gate(
            gates.data_ptr(), *_rows(x), *_vectors(side_by_side(weight)), *_vectors(bias), rows.address, rows.count,
            groups.data_ptr(), x.shape[1],
        )  # fmt: skip
        return gates

    def norm(
        self, x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor | None, runs: Runs, kind: NormKind
    ) -> Tensor:
        """The norm of x [rows, width], or of x + `residual` in the place of x, with `weight` and `bias` [groups, width]
        of one dtype; x and the residual are of one dtype too."""
        y, more, stride = torch.empty_like(x), None, 0
        if residual is not None:
            y, more, stride = x, residual.data_ptr(), residual.stride(0)
        failed = self._norm(
            y.data_ptr(), x.data_ptr(), more, y.stride(0), x.stride(0), stride, _is_half(x),
            *_vectors(weight), *_vectors(bias), _is_half(weight), runs.address, runs.count, x.shape[1], kind.eps,
            kind.centered,
        )  # fmt: skip
        if failed:
            raise MemoryError(f"no memory for a norm of width {x.shape[1]}")
        return y

    def attend(
        self, qkv: Tensor, rows: Runs, seen: Tensor, num_heads: int, prefix: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Each row's softmax attention, [tokens, hidden]: `qkv` [tokens, 3 * hidden]; of a row's tokens the first
        `seen` [rows] in int64 are attended to. A prefix is more keys and values, [rows, heads, prefix, head size]."""
        context = qkv.new_empty(len(qkv), qkv.shape[1] // 3)
        size = context.shape[1] // num_heads
        none = qkv.new_empty(0, 0, 0, size)
        keys, values = (none, none) if prefix is None else (one.contiguous() for one in prefix)
        failed = self._attend(
            context.data_ptr(), context.stride(0), *_rows(qkv), keys.data_ptr(), values.data_ptr(), keys.shape[2],
            _is_half(keys), rows.address, seen.data_ptr(), rows.count, num_heads, size,
        )  # fmt: skip
        if failed:
            raise MemoryError(f"no memory for attention over {rows.count} rows")
        return context


def _is_half(tensor: Tensor) -> bool:
    return _DTYPES[tensor.dtype]


def _rows(tensor: Tensor) -> tuple[int, int, bool]:
    return tensor.data_ptr(), tensor.stride(0), _is_half(tensor)


def _vectors(tensor: Tensor | None) -> tuple[int | None, int]:
    return (None, 0) if tensor is None else (tensor.data_ptr(), tensor.stride(0))


def side_by_side(tensor: Tensor) -> Tensor:
    return tensor if tensor.shape[-1] == 1 or tensor.stride(-1) == 1 else tensor.contiguous()


def serving_library(device: torch.device, dtype: torch.dtype) -> Library | None:
    """The kernels for what computes in `dtype` on `device`; None where torch is to: off the CPU, in a dtype they do
    not know, where gradients are recorded, and where none were built."""
    if device.type != "cpu" or dtype not in _DTYPES or torch.is_grad_enabled():
        return None
    return load_library()


@cache
def load_library() -> Library | None:
    """The kernels that suit this machine; None where none were built, or where they compute wrongly here."""
    path = _FOLDER / f"{_LEVELS.get(torch.backends.cpu.get_cpu_capability(), 'plain')}.so"
    if not path.exists():
        return None
    try:
        library = Library(path)
        _check(library)
    except (OSError, AttributeError, RuntimeError) as error:
        _log.warning("the native kernels are left out: %s", error)
        return None
    return library


@torch.inference_mode()
def _check(library: Library) -> None:
    """Two products of odd sizes against torch's."""
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(9, 37, generator=generator), torch.randn(2, 37, 53, generator=generator)
    y = torch.empty(9, 53)
    library.linear(y, x, weight, None, Runs((5, 4)))
    expected = torch.cat((x[:5] @ weight[0], x[5:] @ weight[1]))
    if not torch.allclose(y, expected, atol=1e-4):
        raise RuntimeError(f"{library.name} gives wrong products on this machine")


def _digest() -> str:
    text = b"".join(path.read_bytes() for path in sorted(_FOLDER.glob("*.[ch]")))
    return hashlib.sha256(text).hexdigest()
