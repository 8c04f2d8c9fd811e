"""What batches of ever new sizes cost: the memory they take permanently, and the speed beside oneDNN's products.

    .venv/bin/python benchmarks/batch_sizes.py [--dtype float32 bfloat16] [--rounds 5] [--soak 10000]

oneDNN prepares code for each number of tokens and keeps it. Two processes compute the same batches by turns: one with
the kernel that `peltier serve` takes, one with oneDNN's products of prepacked weights, of which it keeps as many as by
default. The sizes of batches are fixed, those of single short texts, of up to 32 texts, or any number up to
`--max-tokens`. Milliseconds are CPU time, the least of the rounds. `--soak N` computes N batches of random sizes as
`peltier serve` does, after one batch of the largest size, and reports how far memory grew.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from common.memory import ProcessMemory
from common.options import create_parser
from common.turns import by_turns, median_ratio

LIBRARIES_OWN = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "1024", "LRU_CACHE_CAPACITY": "1024"}
ROW_TOKENS = 128
BATCHES = 48


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--backbone", default="minilm")
    parser.add_argument("--preset", default="compacter")
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--kind", nargs="+", default=list(kinds(1)), choices=list(kinds(1)), help="of sizes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=2048)
    parser.add_argument("--soak", type=int, default=0, help="batches of random sizes, in place of the comparison")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--onednn", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        serve(given.backbone, given.preset, given.child, onednn=given.onednn)
        return
    for dtype in given.dtype:
        if given.soak:
            soak(given, dtype)
        else:
            compare(given, dtype)


def compare(given: argparse.Namespace, dtype: str) -> None:
    """Both processes by turns over each kind of sizes."""
    print(f"{dtype:9} {'sizes':14} {'ms':>11} {'oneDNN ms':>13} {'ratio':>6}   MiB grown")
    for name in given.kind:
        sizes = kinds(given.max_tokens)[name]
        with ExitStack() as stack:
            both = [stack.enter_context(child(given, dtype, environment)) for environment in ({}, LIBRARIES_OWN)]
            starts = [ask(one, [given.max_tokens])["mib"] for one in both]
            found = by_turns({side: partial(ask, one, sizes) for side, one in enumerate(both)}, given.rounds)
        seconds = [[answer["seconds"] for answer in answers] for answers in found.values()]
        ratio = median_ratio(*seconds)
        ms = [1000 * min(own) / len(sizes) for own in seconds]
        grown = [found[side][-1]["mib"] - starts[side] for side in (0, 1)]
        print(
            f"{'':9} {name:14} {ms[0]:11.2f} {ms[1]:13.2f} {ratio:6.3f}   {grown[0]:.0f} and {grown[1]:.0f}", flush=True
        )


def soak(given: argparse.Namespace, dtype: str) -> None:
    """Memory over many batches of random sizes."""
    draw = random.Random(0)
    with child(given, dtype, {}) as process:
        start = ask(process, [given.max_tokens])["mib"]
        print(f"{dtype}: {start:.0f} MiB after a batch of {given.max_tokens} tokens")
        done = 0
        while done < given.soak:
            sizes = [draw.randint(1, given.max_tokens) for _ in range(min(500, given.soak - done))]
            mib = ask(process, sizes)["mib"]
            done += len(sizes)
            print(f"{dtype}: {done:6} batches, {mib - start:+.0f} MiB", flush=True)


def kinds(max_tokens: int) -> dict[str, list[int]]:
    """Tokens of the batches of a pass."""
    draw = random.Random(0)
    lengths = [max(4, min(64, round(draw.gauss(25, 12)))) for _ in range(1000)]
    return {
        "fixed": [16, 64, 256, 800] * (BATCHES // 4),
        "one text": [draw.choice(lengths) for _ in range(BATCHES * 4)],
        "up to 32 texts": [sum(draw.sample(lengths, draw.randint(1, 32))) for _ in range(BATCHES * 2)],
        "any": [draw.randint(1, max_tokens) for _ in range(BATCHES)],
    }


@contextmanager
def child(given: argparse.Namespace, dtype: str, environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """A process that computes what it is asked for."""
    command = [sys.executable, __file__, "--backbone", given.backbone, "--preset", given.preset, "--child", dtype]
    command += ["--onednn"] * bool(environment)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **environment}) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def ask(process: "subprocess.Popen[str]", sizes: Sequence[int]) -> dict[str, Any]:
    """CPU seconds for batches of `sizes` tokens, and the MiB that the process holds then."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(sizes) + "\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


def serve(backbone_name: str, preset: str, dtype: str, *, onednn: bool) -> None:
    """The child: a line of sizes in, a line of figures out, with the settings of `peltier serve` but for its products,
    if they are `onednn`'s."""
    from peltier_backbone.machine.cores import wait_passively

    wait_passively()
    import torch
    from common.adapters import make_artifact
    from peltier_adapters.batch.forward import forward
    from peltier_adapters.batch.row import Row
    from peltier_adapters.residency.bank import Banks
    from peltier_backbone import load
    from peltier_backbone.machine.heap import keep_freed_memory
    from peltier_backbone.text.packing import Encoded

    if onednn:
        from common.onednn import OneDnnLinear

        load.choose_linear = lambda *_: OneDnnLinear
    keep_freed_memory()
    torch.set_num_threads(1)
    backbone = load.load_backbone(backbone_name, dtype=dtype)
    resident = Banks(backbone).add(make_artifact(backbone, preset, 0))

    def rows(tokens: int) -> list[Row]:
        lengths = [ROW_TOKENS] * (tokens // ROW_TOKENS) + [tokens % ROW_TOKENS] * bool(tokens % ROW_TOKENS)
        return [Row(Encoded((100,) * length, (0,) * length), resident) for length in lengths]

    for line in sys.stdin:
        started = time.process_time()
        for tokens in json.loads(line):
            forward(backbone, rows(tokens))
        print(json.dumps({"seconds": time.process_time() - started, "mib": ProcessMemory().now_mib}), flush=True)


if __name__ == "__main__":
    main()
