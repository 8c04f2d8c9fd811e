"""Frozen linear maps in 8 bits, in torch and by the native kernels: exact integer sums, then float32.

Weights have one scale for each output channel, activations one scale and zero point for each token, so that a token's
values never depend on the others of its batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.errors import BackboneError
from peltier_backbone.linear.linear import FrozenLinear, Linear, NativeLinear, PlainLinear
from peltier_backbone.native.choice import load_library
from peltier_backbone.native.stack import FrozenMap

_MAX_WEIGHT, _MAX_ACTIVATION = 127, 255
# AVX2 and NEON add two adjacent products in 16 bits with sign. Two adjacent weights of one sign add up to at most 127
# before they are rounded, so to 128 after it, and 128 * 255 fits.
_MAX_PAIR = 127
# A sum of so many products of an activation (0 to 255) and a weight (-127 to 127) always fits in 32 bits with its sign.
MAX_INNER = (2**31 - 1) // (_MAX_WEIGHT * _MAX_ACTIVATION)
# Quantised at a time: several times their memory is used meanwhile, which for a whole vocabulary is gigabytes.
_PIECE_WEIGHTS = 2**22
# A row of a smaller range counts as zeros: one over its scale may not be finite.
_LEAST_SPAN = 1e-30


@dataclass(frozen=True)
class QuantizedWeight:
    """`values` [out, in] in int8 and `scales` [out] in float32; a weight is about values * scale."""

    values: Tensor
    scales: Tensor

    def dequantize(self) -> Tensor:
        """The weight that the values stand for, [out, in] in float32."""
        return self.values * self.scales[:, None]

    def rows(self, ids: Tensor) -> Tensor:
        """The same of the rows `ids`, [*ids, in]."""
        return F.embedding(ids, self.values) * self.scales[ids][..., None]


@dataclass(frozen=True)
class QuantizedRows:
    """`values` [rows, width] in uint8, `scales` [rows, 1] in float32 and `zeros` [rows, 1] in int32; an activation is
    about (values - zeros) * scales."""

    values: Tensor
    scales: Tensor
    zeros: Tensor


def quantize_weight(weight: Tensor) -> QuantizedWeight:
    """The nearest values of `weight` [out, in]. The scale of a row is the smallest for which no value exceeds 127 and
    no sum of two adjacent products exceeds 16 bits. Raises a `BackboneError` for more inputs than a sum in 32 bits can
    hold."""
    if weight.shape[1] > MAX_INNER:
        raise BackboneError(f"a map of {weight.shape[1]} inputs cannot be int8; the limit is {MAX_INNER} inputs")
    pieces = [_quantize(piece) for piece in torch.split(weight, max(_PIECE_WEIGHTS // weight.shape[1], 1))]
    return QuantizedWeight(torch.cat([one.values for one in pieces]), torch.cat([one.scales for one in pieces]))


def _quantize(weight: Tensor) -> QuantizedWeight:
    scales = torch.maximum(weight.abs().amax(1) / _MAX_WEIGHT, _largest_pairs(weight) / _MAX_PAIR)
    values = weight / torch.where(scales > 0, scales, 1)[:, None]
    return QuantizedWeight(values.round().clamp(-_MAX_WEIGHT, _MAX_WEIGHT).to(torch.int8), scales)


def _largest_pairs(weight: Tensor) -> Tensor:
    """The largest absolute sum of two adjacent weights of one sign, for each row [out]."""
    pairs = F.pad(weight, (0, weight.shape[1] % 2)).view(len(weight), -1, 2)
    return torch.maximum(pairs.clamp(min=0).sum(2), -pairs.clamp(max=0).sum(2)).amax(1)


def quantize_rows(x: Tensor) -> QuantizedRows:
    """The nearest values of `x` [rows, width] in float32. A row's range reaches from its least to its largest number
    and includes 0, which is represented exactly. The scale of a row with an infinity or a NaN is not finite."""
    least, largest = x.amin(1, keepdim=True).clamp(max=0), x.amax(1, keepdim=True).clamp(min=0)
    span = largest - least
    inverse = torch.where(span > _LEAST_SPAN, torch.full_like(span, _MAX_ACTIVATION) / span, 0)
    zeros = (least * inverse).round().neg()
    values = ((x * inverse).round() + zeros).nan_to_num(0).clamp(0, _MAX_ACTIVATION)
    return QuantizedRows(values.to(torch.uint8), span / _MAX_ACTIVATION, zeros.nan_to_num(0).to(torch.int32))


# A sum of so many products of 8 bits is exact in float32, in any order.
_EXACT_INNER = 512


class QuantizedLinear(FrozenLinear):
    """y = x W^T + b with W in int8, one scale for each output channel, and x quantised for each token; in torch.

    Sums are exact, so a token's result never depends on the tokens beside it. Backward is one product with the W that
    the stored values stand for, as if the rounding of x were not there (straight-through).
    """

    name = "int8-torch"
    coarse = True

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight, self._bias = quantize_weight(weight), bias
        self._sums = self._weight.values.sum(1, dtype=torch.int32)

    def multiply(self, x: Tensor) -> Tensor:
        """x W^T + b, without a gradient."""
        rows = quantize_rows(x)
        y = (self._sum(rows) - rows.zeros * self._sums).float() * (rows.scales * self._weight.scales)
        return y if self._bias is None else y + self._bias

    def transpose(self) -> Linear:
        return PlainLinear(self.dequantize().t())

    def weights(self) -> tuple[Tensor, Tensor | None]:
        return self.dequantize(), self._bias

    def dequantize(self) -> Tensor:
        """The W that the stored values stand for, [out, in] in float32."""
        return self._weight.dequantize()

    def rows(self, ids: Tensor) -> Tensor:
        """The rows `ids` of W, [*ids, in] in float32."""
        return self._weight.rows(ids)

    def _sum(self, rows: QuantizedRows) -> Tensor:
        """The sums of products, [tokens, out] in int32."""
        pieces = zip(*(torch.split(one, _EXACT_INNER, 1) for one in (rows.values, self._weight.values)), strict=True)
        sums = [F.linear(values.float(), weight.float()).int() for values, weight in pieces]
        return sum(sums[1:], sums[0])


class NativeQuantizedLinear(QuantizedLinear):
    """See `QuantizedLinear`: the same integer sums in one native call."""

    name = "int8-native"

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        library = load_library()
        assert library is not None, "`load_backbone` takes the kernel of torch where there is no library"
        self.packed_by = library
        own = quantize_weight(weight)
        self._bias, self._library, self._packed = bias, library, library.pack_int8(own.values, own.scales, bias)

    def multiply(self, x: Tensor) -> Tensor:
        return self._library.multiply_int8(x, self._packed)

    def place(self) -> FrozenMap | None:
        return FrozenMap(self._packed.address, None, None, self._packed.inner, self._packed.outer)

    def transpose(self) -> Linear:
        return NativeLinear(self.dequantize().t())

    def rows(self, ids: Tensor) -> Tensor:
        return self._library.rows_int8(self._packed, ids)

    def dequantize(self) -> Tensor:
        return self.rows(torch.arange(self._packed.outer))
