"""Each kernel and its equivalent in torch: gather the weights of each row, pad the rows, multiply in batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from peltier_adapters.ops.kernels import bottleneck, compacter, linear, lora
from peltier_adapters.ops.kernels.runs import Runs, create_runs
from peltier_adapters.ops.op import MatmulStep
from peltier_adapters.ops.torch import multiply_all
from peltier_adapters.parts import maps
from peltier_adapters.spec.maps import LphmMap
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Shape:
    """Rows of `lengths` tokens; adapters of `size` in a model of `width`, every row with another of `slots`."""

    lengths: tuple[int, ...]
    width: int
    size: int
    n: int = 4
    rank: int = 8

    @property
    def tokens(self) -> int:
        return sum(self.lengths)


@dataclass(frozen=True)
class Case:
    """One kernel on one shape: `kernel` and `torch` give the same from the same tensors; `runs` is what the kernel
    reads its slots from; `flops` and `nbytes` are the least that must be done and moved."""

    name: str
    kernel: Call
    torch: Call
    runs: Runs
    flops: float
    nbytes: float


class Draw:
    """Tensors on a device, the same at every run; activations in `dtype`, banks in float32 as the server holds them."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self._generator = torch.Generator().manual_seed(0)

    def bank(self, *shape: int) -> Tensor:
        spread = shape[-2] ** -0.5 if len(shape) > 2 else 1.0
        drawn = torch.randn(shape, generator=self._generator) * spread
        return drawn.bfloat16().float().to(self.device)

    def activations(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator).bfloat16().to(self.device, self.dtype)


class Padded:
    """The equivalent in torch: rows padded to the longest, and weights gathered per row."""

    def __init__(self, lengths: Sequence[int], slots: Tensor) -> None:
        self._lengths, self._slots = list(lengths), slots.long()

    def gather(self, bank: Tensor, dtype: torch.dtype) -> Tensor:
        return bank.index_select(0, self._slots).to(dtype)

    def __call__(self, x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        rows = change(pad_sequence(list(x.split(self._lengths)), batch_first=True))
        return torch.cat([row[:length] for row, length in zip(rows, self._lengths, strict=True)])


def cases(shape: Shape, device: torch.device, dtype: torch.dtype) -> list[Case]:
    """All kernels on `shape`; every row reads another slot, in no order."""
    draw, rows = Draw(device, dtype), len(shape.lengths)
    slots = torch.randperm(rows, generator=torch.Generator().manual_seed(1)).tolist()
    runs = create_runs(shape.lengths, slots, device)
    padded = Padded(shape.lengths, runs.slots)
    return [make(shape, draw, runs, padded) for make in (_linear, _bottleneck, _lora, _compacter, _materialised)]


def _cost(shape: Shape, *weights: Tensor, reads: int = 3) -> tuple[float, float]:
    """Two operations a weight and token; the weights once, and `reads` times the activations."""
    numbers = sum(weight[0].numel() for weight in weights)
    moved = sum(weight.nbytes for weight in weights)
    return 2.0 * numbers * shape.tokens, moved + reads * shape.tokens * shape.width * 2.0


def _linear(shape: Shape, draw: Draw, runs: Runs, padded: Padded) -> Case:
    rows, x = len(shape.lengths), draw.activations(shape.tokens, shape.width)
    weight, bias = draw.bank(rows, shape.width, shape.size), draw.bank(rows, shape.size)

    def plain() -> Tensor:
        w, b = padded.gather(weight, x.dtype), padded.gather(bias, x.dtype)
        return padded(x, lambda one: torch.baddbmm(b[:, None], one, w))

    return Case("linear", lambda: linear.linear(x, weight, bias, runs), plain, runs, *_cost(shape, weight, reads=1))


def _bottleneck(shape: Shape, draw: Draw, runs: Runs, padded: Padded, name: str = "bottleneck") -> Case:
    rows, size = len(shape.lengths), shape.size
    x, y = draw.activations(shape.tokens, shape.width), draw.activations(shape.tokens, shape.width)
    down = draw.bank(rows, shape.width, size), draw.bank(rows, size)
    up = draw.bank(rows, size, shape.width), draw.bank(rows, shape.width)

    def kernel() -> Tensor:
        out = y.clone()
        bottleneck.bottleneck(out, x, bottleneck.Maps(*down, *up), "gelu", runs)
        return out

    def plain() -> Tensor:
        w, b, u, c = (padded.gather(tensor, x.dtype) for tensor in (*down, *up))
        inner = padded(x, lambda one: F.gelu(torch.baddbmm(b[:, None], one, w)))
        return y + padded(inner, lambda one: torch.baddbmm(c[:, None], one, u))

    return Case(name, kernel, plain, runs, *_cost(shape, down[0], up[0]))


def _materialised(shape: Shape, draw: Draw, runs: Runs, padded: Padded) -> Case:
    """What a Compacter costs when its maps are built: a dense bottleneck of the same size."""
    return _bottleneck(shape, draw, runs, padded, "compacter, materialised")


def _lora(shape: Shape, draw: Draw, runs: Runs, padded: Padded) -> Case:
    rows, rank = len(shape.lengths), shape.rank
    x, y = draw.activations(shape.tokens, shape.width), draw.activations(shape.tokens, shape.width)
    down, up = draw.bank(rows, shape.width, rank), draw.bank(rows, rank, shape.width)

    def kernel() -> Tensor:
        out = y.clone()
        lora.lora(out, x, down, up, runs)
        return out

    def plain() -> Tensor:
        a, b = padded.gather(down, x.dtype), padded.gather(up, x.dtype)
        return y + padded(x, lambda one: torch.bmm(torch.bmm(one, a), b))

    return Case("lora", kernel, plain, runs, *_cost(shape, down, up))


def _compacter(shape: Shape, draw: Draw, runs: Runs, padded: Padded) -> Case:
    """Compared with a loop over rows, because torch has no single call for the factored form."""
    rows, spec = len(shape.lengths), LphmMap(n=shape.n, rank=1)
    x, y = draw.activations(shape.tokens, shape.width), draw.activations(shape.tokens, shape.width)
    rule = draw.bank(rows, shape.n, shape.n, shape.n)

    def fold(before: int, after: int) -> list[tuple[MatmulStep, ...]]:
        """The steps of each row's map."""
        shapes = spec.shapes(before, after) | {"bias": (after,)}
        drawn = {name: draw.bank(rows, 1, 1, *own) for name, own in shapes.items()}
        of_rows = ({name: one[row] for name, one in drawn.items()} for row in range(rows))
        return [maps.lower(spec, one, rule[row], draw.device)[0] for row, one in enumerate(of_rows)]

    down, up = fold(shape.width, shape.size), fold(shape.size, shape.width)
    tensors = [
        [one for step in (*pair[0], *pair[1]) for one in (step.weight, step.bias)]
        for pair in zip(down, up, strict=True)
    ]
    folded = compacter.Maps(*(torch.stack(own) for own in zip(*tensors, strict=True) if own[0] is not None))
    slots = runs.slots.tolist()

    def kernel() -> Tensor:
        out = y.clone()
        compacter.compacter(out, x, folded, "gelu_new", runs)
        return out

    def plain() -> Tensor:
        added = []
        for piece, slot in zip(x.split(list(shape.lengths)), slots, strict=True):
            inner = F.gelu(multiply_all(down[slot], piece), approximate="tanh")
            added.append(multiply_all(up[slot], inner))
        return y + torch.cat(added)

    return Case("compacter", kernel, plain, runs, *_cost(shape, *folded))
