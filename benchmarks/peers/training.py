"""One epoch of training: Peltier's Compacter, AdapterHub's, and full fine-tuning, over the same batches on one thread.

    .venv/bin/python benchmarks/peers/training.py [--data SST2/train.jsonl.gz] [--dtype bfloat16] [--rounds 3]

All three are plain loops over PyTorch's AdamW without dropout, each in its own process. They take turns, after a
warm-up epoch. Times are CPU seconds. Memory is each process's peak of resident bytes, and its growth since before the
training (the libraries and the frozen model are then loaded). With bfloat16 Peltier's backbone is in bfloat16, and the
others train under autocast.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
from pathlib import Path

from contender import Contender
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.text.tokenizer import load_tokenizer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.sentences import load_sentences

ROWS, MAX_TOKENS = 512, 64
EPOCH = "epoch"


def write_rows(path: Path, data: Path | None) -> int:
    """Token ids and a label of each row; returns the number of tokens."""
    tokenizer = load_tokenizer(find_checkpoint("minilm"))
    encoded = [tokenizer.encode(text, max_tokens=MAX_TOKENS).ids for text in load_sentences(data, ROWS)]
    draw = random.Random(0)
    path.write_text(json.dumps([[list(ids), draw.randrange(2)] for ids in encoded]))
    return sum(map(len, encoded))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="SST-2's train.jsonl.gz")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        num_tokens = write_rows(rows, options.data)
        arguments = options.dtype, str(find_checkpoint("minilm")), str(rows)
        contenders = [
            Contender("peltier, compacter", "train_peltier.py", None, *arguments),
            Contender("adapterhub, compacter", "train_adapterhub.py", "adapterhub", *arguments),
            Contender("full fine-tuning", "train_full.py", None, *arguments),
        ]
        try:
            report(contenders, options.rounds, f"{options.dtype}, {ROWS} rows, {num_tokens} tokens")
        finally:
            for one in contenders:
                one.close()


def report(contenders: list[Contender], rounds: int, title: str) -> None:
    """One row a contender; ratios are medians over rounds, against Peltier."""
    before = {one.name: peak_before(one) for one in contenders}
    seconds = [[one.seconds(EPOCH) for one in contenders] for _ in range(rounds + 1)][1:]
    table = Table("", "CPU seconds an epoch", "x peltier", "peak MB", "above its start, MB")
    for number, one in enumerate(contenders):
        own = statistics.median(turn[number] for turn in seconds)
        ratio = statistics.median(turn[number] / turn[0] for turn in seconds)
        grown = one.peak_bytes - before[one.name]
        table.add_row(one.name, f"{own:.1f}", f"{ratio:.2f}", f"{one.peak_bytes / 1e6:.0f}", f"{grown / 1e6:.0f}")
    console = Console(width=100)
    console.print(title)
    console.print(table)


def peak_before(one: Contender) -> int:
    """What its process has had in memory before it trains."""
    one.seconds("nothing")
    return one.peak_bytes


if __name__ == "__main__":
    main()
