"""Compares ops, mixed batches and predictions with float32 on one GPU, then times them and texts, in four minutes.

    python benchmarks/gpu/run.py [--json FILE]        on a machine with a GPU and Triton
    python benchmarks/gpu/run.py --dry-run            the same sections at toy sizes in Triton's interpreter, on the CPU

It prints one line of JSON per figure and ends with a table. It exits with 1 if a check failed. Times are medians of
interleaved rounds of calls without a wait between them; `graph` is replayed from a CUDA graph. `of_matmul` and
`of_limit` are shares of what the GPU reaches in large products and copies. Most batches have rows of one length, for
which transformers needs no sorting; `ragged` is a batch of mixed lengths.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from bench import Bench

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.harness import create_parser


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
    for name, dtype in bench.dtypes.items():
        left = torch.randn(size, size, device=bench.device).to(dtype)
        found[name] = 2 * size**3 / bench.seconds({"product": lambda left=left: left @ left})["product"]
        bench.record("limits", what=f"matmul {size}, {name}", flops_per_second=found[name])
    source = torch.empty(64 * size * size // 4, device=bench.device)
    target = torch.empty_like(source)
    found["bytes"] = 2 * source.nbytes / bench.seconds({"copy": lambda: target.copy_(source)})["copy"]
    bench.record("limits", what="copy", bytes_per_second=found["bytes"])
    return found


def check_start(bench: Bench) -> None:
    """The comparison that a server makes when it starts, with the first compilations."""
    from peltier_adapters.gpu.backend import TritonBackend
    from peltier_adapters.gpu.self_check import check

    for name, dtype in bench.dtypes.items():
        start = time.perf_counter()
        check(TritonBackend(bench.device, dtype), bench.device, dtype)  # raises if a kernel is wrong
        bench.check("start check", 0.0, 0.0, dtype=name, seconds=round(time.perf_counter() - start, 1))


@dataclass(frozen=True)
class Plan:
    """The sizes of a run: `rows` of each batch, equally many of each preset; `even` has lengths that all rows share."""

    rounds: int
    matrix: int
    rows: int
    width: int
    layers: int
    longest: int
    texts: tuple[int, ...]
    text_tokens: int
    even: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ("float32", "bfloat16")

    def lengths(self) -> dict[str, tuple[int, ...]]:
        """Rows of one length, and of lengths like SST-2's."""
        ragged = tuple(3 + 7 * number % self.longest for number in range(self.rows))
        even = {f"{self.rows}x{length}": (length,) * self.rows for length in self.even}
        return even | {"ragged": ragged}


FULL = Plan(
    rounds=5, matrix=8192, rows=64, width=768, layers=12, longest=60, texts=(32, 4), text_tokens=32, even=(64, 16)
)
# The interpreter computes both dtypes by the same code.
TOY = Plan(rounds=0, matrix=32, rows=4, width=32, layers=1, longest=5, texts=(4,), text_tokens=2, dtypes=("float32",))


# A section that has not begun by then is skipped.
_LATEST_SECONDS = 420.0


def run(bench: Bench, plan: Plan) -> None:
    """All sections."""
    from adapter_loads import compare_loads
    from mixed_batches import BackboneSizes, compare
    from texts import compare_texts

    card(bench)
    found = limits(bench, plan.matrix)
    sizes = BackboneSizes(plan.width, plan.layers, max(plan.width // 64, 2), 4 * plan.width)
    sections: dict[str, Callable[[], None]] = {
        "start": lambda: check_start(bench),
        "loads": lambda: compare_loads(bench, 4 * plan.width * 48 * plan.layers),
        "bert": lambda: compare(bench, sizes, plan.lengths(), found, generates=False),
        "t5": lambda: compare(bench, sizes, plan.lengths(), found, generates=True),
        "texts": lambda: compare_texts(bench, sizes, plan.texts, plan.text_tokens),
    }
    for name, section in sections.items():
        bench.run(name, section, _LATEST_SECONDS)


def table(bench: Bench) -> None:
    """What was timed, for people."""
    for figure in bench.figures:
        taken = figure.get("ms") or figure.get("us")
        if isinstance(taken, dict):
            unit = "ms" if "ms" in figure else "us"
            names = [str(figure[key]) for key in ("section", "family", "preset", "shape", "dtype") if key in figure]
            print(f"{' '.join(names):52}", "  ".join(f"{name} {value:.1f} {unit}" for name, value in taken.items()))


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--dry-run", action="store_true", help="toy sizes on the CPU, in Triton's interpreter")
    parser.add_argument("--json", type=Path, help="also write all figures here")
    options = parser.parse_args()
    if not options.dry_run and not torch.cuda.is_available():
        sys.exit("error: torch sees no CUDA device; --dry-run needs none")
    if options.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, which is not before this
        from interpreter import repeat_less

        repeat_less()
    plan = TOY if options.dry_run else FULL
    bench = Bench(torch.device("cpu" if options.dry_run else "cuda"), plan.rounds, plan.dtypes)
    run(bench, plan)
    table(bench)
    if options.json:
        options.json.write_text("".join(json.dumps(figure) + "\n" for figure in bench.figures))
    checks = [figure["ok"] for figure in bench.figures if "ok" in figure]
    skipped = [figure["after"] for figure in bench.figures if figure.get("skipped")]
    if skipped or not all(checks):
        sys.exit(f"error: {checks.count(False)} of {len(checks)} checks failed; skipped for lack of time: {skipped}")
    print(f"all {len(checks)} checks passed")


if __name__ == "__main__":
    main()
