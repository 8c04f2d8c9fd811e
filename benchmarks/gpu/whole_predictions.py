"""Whole predictions, from rows to logits on the host. BERT's are also replayed from CUDA graphs."""

from collections.abc import Callable, Sequence

import torch
from bench import Bench
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.gpu.capture import CudaCapture
from peltier_adapters.gpu.graphs import Graphs
from peltier_adapters.residency.bank import Resident
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from random_adapters import by_torch
from torch import Tensor

# Mean difference of logits as a share of their mean size: the head adds up what the layers have rounded.
TOLERANCE = {"float32": 1e-4, "bfloat16": 6e-2}


def successive(rows: Sequence[Encoded], residents: Sequence[Resident]) -> list[list[Row]]:
    """Batches of one shape that differ in everything else: as given, adapters and rows changed about, and half of the
    adapters twice each."""
    turned = [*residents[1:], residents[0]]
    halved = [residents[number // 2 * 2] for number in range(len(residents))]
    batches = ((rows, residents), (rows[::-1], turned), (rows, halved))
    return [[Row(*pair) for pair in zip(encoded, own, strict=True)] for encoded, own in batches]


def compare_predictions(
    bench: Bench, backbone: Backbone, exact: Backbone, batches: Sequence[tuple[list[Row], list[Row]]],
    labels: dict[str, str],
) -> None:  # fmt: skip
    """Every batch, whose rows are on both backbones, checked against float32 without kernels; then timed. All graphs
    but the first are replayed for other batches than they were captured for."""
    graphs = None if backbone.config.generates else Graphs(backbone, _capture(bench.device), capture_after=1)
    for number, (rows, exact_rows) in enumerate(batches):
        with by_torch():
            expected = _logits(exact, exact_rows)
            # What the adapters change: each row with the next row's.
            residents = [row.resident for row in exact_rows]
            others = zip(exact_rows, [*residents[1:], residents[0]], strict=True)
            changed = _error(_logits(exact, [Row(row.encoded, other) for row, other in others]), expected)
        own = {**labels, "batch": number}
        error = _error(_logits(backbone, rows), expected)
        bench.check("prediction check", error, TOLERANCE[labels["dtype"]], **own, adapters_change=changed)
        if graphs is not None:
            found = _logits(backbone, rows, graphs)
            bench.check("graph check", _error(found, expected), TOLERANCE[labels["dtype"]], **own)
    rows = sorted(batches[0][0], key=lambda row: row.order)
    calls: dict[str, Callable[[], object]] = {"launched": lambda: forward(backbone, rows)}
    if graphs is not None:
        bench.check("graphs made", float(len(graphs) - 1), 0.0, **labels)
        calls["graph"] = lambda: forward(backbone, rows, graphs=graphs)
    ms = {name: round(own * 1e3, 3) for name, own in bench.seconds(calls).items()}
    bench.record("prediction", **labels, ms=ms)


def _capture(device: torch.device) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """A dry run's replay is the call itself."""
    return CudaCapture(device) if device.type == "cuda" else lambda run: run


def _logits(backbone: Backbone, rows: Sequence[Row], graphs: Graphs | None = None) -> Tensor:
    return torch.stack([output.logits for output in forward(backbone, rows, graphs=graphs)])


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().mean() / expected.abs().mean())
