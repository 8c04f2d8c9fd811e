"""One epoch of training: Peltier's Compacter, AdapterHub's, and full fine-tuning, over the same batches on one thread.

    .venv/bin/python benchmarks/peers/training.py [--data SST2/train.jsonl.gz] [--level avx2] [--rounds 3]

All three are plain loops over PyTorch's AdamW without dropout, each in its own process. They take turns, after a
warm-up epoch. Times are CPU seconds. Memory is each process's peak of resident bytes, and its growth since before the
training (the libraries and the frozen model are then loaded). `--level` holds every process to an instruction level.
With `--dtype bfloat16` Peltier's backbone is in bfloat16, and the others train under autocast.
"""

import json
import random
import sys
import tempfile
from functools import partial
from pathlib import Path

from contender import Contender
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.text.tokenizer import load_tokenizer

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.forced import add_level
from common.harness import Table, add_data, by_turns, create_parser, median, median_ratio
from common.sentences import load_sentences

MAX_TOKENS = 64


def write_rows(path: Path, data: Path | None, num_rows: int) -> int:
    """Token ids and a label of each row; returns the number of tokens."""
    tokenizer = load_tokenizer(find_checkpoint("minilm"))
    encoded = [tokenizer.encode(text, max_tokens=MAX_TOKENS).ids for text in load_sentences(data, num_rows)]
    draw = random.Random(0)
    path.write_text(json.dumps([[list(ids), draw.randrange(2)] for ids in encoded]))
    return sum(map(len, encoded))


def main() -> None:
    parser = create_parser(__doc__, rows=512, rounds=3)
    add_data(parser, "SST-2's train.jsonl.gz")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    add_level(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        num_tokens = write_rows(rows, options.data, options.rows)
        contender = partial(Contender, level=options.level)
        arguments = options.dtype, str(find_checkpoint("minilm")), str(rows)
        with (
            contender("peltier, compacter", "train_peltier.py", None, *arguments) as own,
            contender("adapterhub, compacter", "train_adapterhub.py", "adapterhub", *arguments) as other,
            contender("full fine-tuning", "train_full.py", None, *arguments) as full,
        ):
            report([own, other, full], options.rounds, f"{options.dtype}, {options.rows} rows, {num_tokens} tokens")


def report(contenders: list[Contender], rounds: int, title: str) -> None:
    """One row a contender; ratios are medians over rounds, against Peltier."""
    before = {one.name: peak_before(one) for one in contenders}
    seconds = by_turns({one.name: partial(one.seconds, "epoch") for one in contenders}, rounds)
    print(title)
    table = Table("", "CPU seconds an epoch", "x peltier", "peak MB", "above its start, MB")
    for one in contenders:
        own = seconds[one.name]
        ratio = median_ratio(own, seconds[contenders[0].name])
        grown = one.peak_bytes - before[one.name]
        table.row(one.name, median(own, ".1f"), f"{ratio:.2f}", f"{one.peak_bytes / 1e6:.0f}", f"{grown / 1e6:.0f}")


def peak_before(one: Contender) -> int:
    """What its process has had in memory before it trains."""
    one.seconds("nothing")
    return one.peak_bytes


if __name__ == "__main__":
    main()
