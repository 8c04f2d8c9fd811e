"""Whole predictions of BERT, from rows to logits on the host: launched one by one, and replayed from CUDA graphs."""

from collections.abc import Callable, Sequence
from unittest.mock import patch

import torch
from bench import Bench
from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.artifact.manifest import Golden, Manifest
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.golden.proof import create_reference
from peltier_adapters.graphs.capture import CudaCapture
from peltier_adapters.graphs.graphs import Graphs
from peltier_adapters.ops import backend
from peltier_adapters.ops.torch import TORCH
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded
from random_adapters import PRESETS, compose, draw
from torch import Tensor

# Mean difference of logits as a share of their mean size: the head adds up what the layers have rounded.
TOLERANCE = {"float32": 1e-4, "bfloat16": 6e-2}


def create_residents(exact: Backbone, on_device: Backbone, count: int) -> list[Resident]:
    """`count` adapters of each preset with their heads, as a server keeps them; `exact` is in float32 on the CPU."""
    banks, residents = Banks(on_device), []
    task = TaskSpec(type="classification", labels=("no", "yes"), inputs="single", max_length=64)
    for preset in PRESETS:
        parts = compose(preset, exact.config)
        manifest = Manifest(
            name="bench", preset=preset, parts=parts, backbone=create_reference(exact), task=task,
            golden=(Golden(input="a text", output=(0.0, 0.0)),),
        )  # fmt: skip
        tensors = [draw(exact, parts, seed) for seed in range(count)]
        residents += [banks.add(Artifact(manifest, own, f"sha256:{seed:064x}")) for seed, own in enumerate(tensors)]
    return residents


def successive(rows: Sequence[Encoded], residents: Sequence[Resident]) -> list[list[Row]]:
    """Batches of one shape that differ in everything else: as given, adapters and rows changed about, and half of the
    adapters twice each."""
    turned = [*residents[1:], residents[0]]
    halved = [residents[number // 2 * 2] for number in range(len(residents))]
    batches = ((rows, residents), (rows[::-1], turned), (rows, halved))
    return [[Row(*pair) for pair in zip(encoded, own, strict=True)] for encoded, own in batches]


def compare_graphs(
    bench: Bench, backbone: Backbone, exact: Backbone, batches: Sequence[Sequence[Row]], labels: dict[str, str]
) -> None:
    """Every batch checked against float32 without kernels, all but the first on a graph that others made; then timed.
    `exact` is in float32 on the same device."""
    graphs = Graphs(backbone, _capture(bench.device), capture_after=1)
    before = _reserved(bench)
    for number, rows in enumerate(batches):
        with patch.object(backend, "choose_backend", lambda device, dtype: TORCH):
            expected = _logits(exact, rows)
        errors = [_error(_logits(backbone, rows, own), expected) for own in (graphs, None)]
        bench.check(
            "graph check", errors[0], TOLERANCE[labels["dtype"]], **labels, batch=number, without_graph=errors[1]
        )
    bench.check("graphs made", float(len(graphs) - 1), 0.0, **labels, reserved_bytes=_reserved(bench) - before)
    rows = sorted(batches[0], key=lambda row: row.order)
    taken = bench.seconds({
        "launched": lambda: forward(backbone, rows),
        "graph": lambda: forward(backbone, rows, graphs=graphs),
        "graph, no heads": lambda: _replay(graphs, rows),
    })  # fmt: skip
    ms = {name: round(own * 1e3, 3) for name, own in taken.items()}
    bench.record("graph", **labels, ms=ms, of_launched=taken["launched"] / taken["graph"])


def _capture(device: torch.device) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """A dry run's replay is the call itself."""
    return CudaCapture(device) if device.type == "cuda" else lambda run: run


@torch.inference_mode()
def _replay(graphs: Graphs, rows: Sequence[Row]) -> None:
    graphs.pooled(rows)


def _logits(backbone: Backbone, rows: Sequence[Row], graphs: Graphs | None = None) -> Tensor:
    return torch.stack([output.logits for output in forward(backbone, rows, graphs=graphs)])


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().mean() / expected.abs().mean())


def _reserved(bench: Bench) -> int:
    return torch.cuda.memory_reserved() if bench.device.type == "cuda" else 0
