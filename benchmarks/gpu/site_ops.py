"""The ops of one layer of BERT by the backend of the device and by torch, for the adapters of one preset at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from bench import Bench
from peltier_adapters.ops import choice
from peltier_adapters.ops.backend import AdapterGroup, Backend
from peltier_adapters.ops.op import FusedMatmul, Program
from peltier_adapters.ops.torch import TORCH
from peltier_backbone.backbone import Backbone
from random_adapters import PRESETS
from torch import Tensor

# Largest difference to float32 over largest value: sums of some hundred terms; a few roundings to eight bits.
TOLERANCE = {"float32": 2e-5, "bfloat16": 3e-2}
_MULTIPLES = {"query_key_value": 3, "intermediate": 4}


@dataclass(frozen=True)
class LayerOps:
    """All ops of one layer that the adapters of a preset have in the backbone. `flops` and `nbytes` are the least that
    must be computed and moved."""

    preset: str
    program: Program
    groups: Sequence[AdapterGroup]
    lengths: Sequence[int]
    backbone: Backbone

    def call(self, chosen: Backend) -> Callable[[], Tensor]:
        """Computes the ops by `chosen`. The tables of the batch are built before."""
        ops, places = chosen.group(self.groups, self.lengths), self._places
        inputs = [(site, self._draw(_MULTIPLES.get(site, 1), 0), self._draw(1, 1)) for site in places]

        @torch.inference_mode()
        def run() -> Tensor:
            found = []
            for site, base, x in inputs:
                y = base.clone()
                found.append(ops.act(site, 0, y, y if site in ("attention", "ffn") else x, x))
            return torch.cat(found, 1)

        return run

    @property
    def flops(self) -> float:
        """Two for each weight and token."""
        return 2.0 * sum(self.lengths) * sum(step.fold * step.weight.numel() for step in self._steps)

    @property
    def nbytes(self) -> float:
        """The weights of each adapter once, and three times the activations."""
        size = self.backbone.dtype.itemsize
        activations = sum(1 + 2 * _MULTIPLES.get(site, 1) for site in self._places)
        moved = sum(self.lengths) * self.backbone.config.hidden_size * activations
        return float(size * (moved + len(self.groups) * sum(step.weight.numel() for step in self._steps)))

    @property
    def _places(self) -> list[str]:
        return sorted(site for site, number in self.program.placed if number == 0 and site not in ("pooler", "head"))

    @property
    def _steps(self) -> Iterator:
        for site in self._places:
            for op in self.program.placed[site, 0]:
                yield from op.steps if isinstance(op, FusedMatmul) else ()

    def _draw(self, multiple: int, seed: int) -> Tensor:
        shape = sum(self.lengths), multiple * self.backbone.config.hidden_size
        # Rounded, so that all dtypes compute from the same values.
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()
        return drawn.to(self.backbone.device, self.backbone.dtype)


def create_cases(backbone: Backbone, groups: Sequence[AdapterGroup], lengths: Sequence[int]) -> list[LayerOps]:
    """One case for each preset, whose adapters share a program."""
    count = len(groups) // len(PRESETS)
    cases = []
    for number, preset in enumerate(PRESETS):
        own = groups[number * count : (number + 1) * count]
        assert own[0].program is not None, "every preset acts in the backbone"
        cases.append(LayerOps(preset, own[0].program, own, lengths[:count], backbone))
    return cases


def compare_ops(
    bench: Bench, cases: Sequence[LayerOps], exact: Sequence[LayerOps], limits: dict[str, float], labels: dict[str, str]
) -> None:
    """Each case against torch in float32 on the same device; then timed, also replayed from a CUDA graph."""
    for case, reference in zip(cases, exact, strict=True):
        own = {**labels, "preset": case.preset}
        kernels = case.call(choice.choose_backend(bench.device, case.backbone.dtype))
        bench.check("ops check", _error(kernels(), reference.call(TORCH)()), TOLERANCE[labels["dtype"]], **own)
        calls: dict[str, Callable[[], object]] = {"kernels": kernels}
        if bench.device.type == "cuda":
            calls["graph"] = _capture(kernels)
        taken = bench.seconds(calls)
        least = max(case.flops / limits[labels["dtype"]], case.nbytes / limits["bytes"])
        us = {call: round(own * 1e6, 1) for call, own in taken.items()}
        bench.record("ops", **own, us=us, of_limit=least / min(taken.values()))


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected).abs().max() / expected.abs().max())


def _capture(call: Callable[[], Tensor]) -> Callable[[], None]:
    """The replay of a CUDA graph of `call`."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay
