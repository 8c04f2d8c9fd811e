"""Compares every kernel and mixed batches with float32 on one GPU, then times them, in less than nine minutes.

    python benchmarks/gpu/run.py [--json FILE]        on a machine with a GPU and Triton
    python benchmarks/gpu/run.py --dry-run            the same sections at toy sizes in Triton's interpreter, on the CPU

It prints one line of JSON per figure and ends with a table. It exits with 1 if a check failed. Times are medians of
interleaved rounds and include the host's work. `graph` is the same kernel replayed from a CUDA graph, without the
host's work; section "graph" compares a whole prediction with the server's graphs and with separate launches. Most
batches have rows of one length, for which transformers needs no sorting; `ragged` is a batch of mixed lengths.
"""

import argparse
import itertools
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from bench import DTYPES, Bench
from torch import Tensor

# Largest difference to float32 over largest value: sums of some hundred terms; a few roundings of eight bits.
KERNEL_TOLERANCE = {"float32": 2e-5, "bfloat16": 3e-2}


def card(bench: Bench) -> None:
    """What this ran on."""
    import triton

    versions = {"torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda}
    if bench.device.type == "cuda":
        found = torch.cuda.get_device_properties(bench.device)
        bench.record("card", name=found.name, memory_bytes=found.total_memory, capability=[found.major, found.minor],
                     processors=found.multi_processor_count, **versions)  # fmt: skip
    else:
        bench.record("card", name="none: Triton's interpreter on the CPU", **versions)


def limits(bench: Bench, size: int) -> dict[str, float]:
    """The limits of this GPU: products of two large matrices, and a copy (bytes read and written)."""
    found = {}
    for name, dtype in DTYPES.items():
        left = torch.randn(size, size, device=bench.device).to(dtype)
        found[name] = 2 * size**3 / bench.seconds({"product": lambda left=left: left @ left})["product"]
        bench.record("limits", what=f"matmul {size}, {name}", flops_per_second=found[name])
    source = torch.empty(64 * size * size // 4, device=bench.device)
    target = torch.empty_like(source)
    found["bytes"] = 2 * source.nbytes / bench.seconds({"copy": lambda: target.copy_(source)})["copy"]
    bench.record("limits", what="copy", bytes_per_second=found["bytes"])
    return found


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).abs().max() / expected.float().abs().max())


def check_kernels(bench: Bench, shapes: Mapping[str, object]) -> None:
    """Each kernel against torch in float32 on the same GPU."""
    from kernel_cases import cases

    for name, shape in shapes.items():
        exact = cases(shape, bench.device, torch.float32)
        for dtype, kind in DTYPES.items():
            for case, reference in zip(cases(shape, bench.device, kind), exact, strict=True):
                error = relative_error(case.kernel(), reference.torch())
                bench.check("kernel check", error, KERNEL_TOLERANCE[dtype], kernel=case.name, shape=name, dtype=dtype)


def captured(call: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """A CUDA graph of `call`, and where its replay writes."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = call()
    return graph, output


def check_replay(bench: Bench, shape: object) -> None:
    """A captured kernel reads the slots at the time of its replay."""
    from kernel_cases import cases

    for case in cases(shape, bench.device, torch.bfloat16) if bench.device.type == "cuda" else ():
        graph, output = captured(case.kernel)
        case.runs.slots.copy_(case.runs.slots.flip(0))
        graph.replay()
        bench.check("graph replay with other slots", relative_error(output, case.kernel()), 0.0, kernel=case.name)


def time_kernels(bench: Bench, shapes: Mapping[str, object], found: Mapping[str, float]) -> None:
    """Each kernel against torch, and the share of the GPU's limits that the kernel reaches."""
    from kernel_cases import cases

    for (name, shape), (dtype, kind) in itertools.product(shapes.items(), DTYPES.items()):
        for case in cases(shape, bench.device, kind):
            calls: dict[str, Callable[[], object]] = {"kernel": case.kernel, "torch": case.torch}
            if bench.device.type == "cuda":
                graph, _ = captured(case.kernel)
                calls["graph"] = graph.replay
            taken = bench.seconds(calls)
            best = taken.get("graph", taken["kernel"])
            us = {call: round(own * 1e6, 1) for call, own in taken.items()}
            bench.record(
                "kernel", kernel=case.name, shape=name, dtype=dtype, us=us,
                matmul_share=case.flops / best / found[dtype], bandwidth_share=case.nbytes / best / found["bytes"],
            )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The sizes of a run: `rows` of each batch, equally many of each preset; `even` has lengths that all rows share."""

    rounds: int
    matrix: int
    rows: int
    width: int
    size: int
    layers: int
    longest: int
    even: tuple[int, ...] = ()

    def lengths(self) -> dict[str, tuple[int, ...]]:
        """Rows of one length, and of lengths like SST-2's."""
        ragged = tuple(3 + 7 * number % self.longest for number in range(self.rows))
        even = {f"{self.rows}x{length}": (length,) * self.rows for length in self.even}
        return even | {"ragged": ragged}


FULL = Plan(rounds=9, matrix=8192, rows=32, width=768, size=48, layers=12, longest=60, even=(64, 16))
TOY = Plan(rounds=0, matrix=32, rows=8, width=32, size=8, layers=1, longest=5)


# A section that has not begun by then is skipped. The longest takes about 90 seconds, all of them 260.
_LATEST_SECONDS = 420.0


def run(bench: Bench, plan: Plan) -> None:
    """All sections: checks first, so that a run that is cut short has them."""
    from adapter_loads import compare_loads
    from kernel_cases import Shape
    from mixed_batches import Sizes, compare

    card(bench)
    found = limits(bench, plan.matrix)
    lengths = plan.lengths()
    shapes = {name: Shape(own, plan.width, plan.size) for name, own in lengths.items()}
    sizes = Sizes(plan.width, plan.layers, max(plan.width // 64, 2), 4 * plan.width)
    sections: dict[str, Callable[[], None]] = {
        "loads": lambda: compare_loads(bench, 4 * plan.width * plan.size * plan.layers),
        "kernel checks": lambda: check_kernels(bench, shapes),
        "replay checks": lambda: check_replay(bench, shapes["ragged"]),
        "bert": lambda: compare(bench, sizes, lengths, generates=False),
        "t5": lambda: compare(bench, sizes, lengths, generates=True),
        "kernels": lambda: time_kernels(bench, shapes, found),
    }
    for name, section in sections.items():
        bench.run(name, section, _LATEST_SECONDS)


def table(bench: Bench) -> None:
    """What was timed, for people."""
    for figure in bench.figures:
        taken = figure.get("ms") or figure.get("us")
        if isinstance(taken, dict):
            unit = "ms" if "ms" in figure else "us"
            names = [str(figure[key]) for key in ("section", "family", "kernel", "shape", "dtype") if key in figure]
            print(f"{' '.join(names):52}", "  ".join(f"{name} {value:.1f} {unit}" for name, value in taken.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="toy sizes on the CPU, in Triton's interpreter")
    parser.add_argument("--json", type=Path, help="also write all figures here")
    options = parser.parse_args()
    if not options.dry_run and not torch.cuda.is_available():
        sys.exit("error: torch sees no CUDA device; --dry-run needs none")
    if options.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, which is not before `run`
    bench = Bench(torch.device("cpu" if options.dry_run else "cuda"), (TOY if options.dry_run else FULL).rounds)
    run(bench, TOY if options.dry_run else FULL)
    table(bench)
    if options.json:
        options.json.write_text("".join(json.dumps(figure) + "\n" for figure in bench.figures))
    failed = [figure for figure in bench.figures if figure.get("ok") is False]
    sys.exit(f"error: {len(failed)} checks failed" if failed else 0)


if __name__ == "__main__":
    main()
