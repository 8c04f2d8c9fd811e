"""Embeddings of MiniLM by Peltier and by sentence-transformers, of the same sentences, on one thread in float32.

    .venv/bin/python benchmarks/peers/embeddings.py [--data DIR/sst2/validation.jsonl.gz] [--sentences 400] [--rounds 5]

Each library runs in its own process, and they take turns. Times are CPU seconds, from texts to vectors. Both compute
batches of 32 sentences in the order of their lengths. The vectors are compared before.

The ratio has a bound: the linear maps need 21 MFLOP for each token, and the last column says what share of the
processor's rate of float32 multiplications, as measured by a product of large matrices, these maps are alone.
"""

import json
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from contender import Contender
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.load import load_backbone

sys.path.insert(0, str(Path(__file__).parents[1]))

from common.harness import Table, add_data, add_json, by_turns, cpu_seconds, create_parser, median_ratio, write_json
from common.sentences import load_sentences

OURS, THEIRS = "peltier", "sentence-transformers"


def flops(sentences: list[str]) -> float:
    """Of the linear maps of all tokens."""
    backbone = load_backbone("minilm", device="cpu")
    config = backbone.config
    tokens = sum(len(backbone.tokenizer.encode(text)) for text in sentences)
    layer = 4 * config.hidden_size**2 + 2 * config.hidden_size * config.expansion_size
    return 2.0 * tokens * config.num_layers * layer


def product_rate() -> float:
    """FLOP per CPU second of a product of matrices on one thread, the best of several."""
    torch.set_num_threads(1)
    a, b = torch.randn(1536, 1536), torch.randn(1536, 1536)
    return 2 * 1536**3 / min(cpu_seconds(lambda: a @ b) for _ in range(5))


def main() -> None:
    parser = create_parser(__doc__, sentences=400, rounds=5)
    add_data(parser)
    add_json(parser, "the seconds of each round")
    options = parser.parse_args()
    sentences = load_sentences(options.data, options.sentences)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "texts.json").write_text(json.dumps(sentences))
        arguments = str(find_checkpoint("minilm")), str(folder)
        with (
            Contender(OURS, "embed_peltier.py", None, *arguments) as own,
            Contender(THEIRS, "embed_sentence_transformers.py", THEIRS, *arguments) as other,
        ):
            both = (own, other)
            for one in both:
                one.seconds("save")
            difference = np.abs(np.subtract(*(np.load(folder / f"{one.name}.npy") for one in both))).max()
            assert difference < 1e-5, difference
            seconds = by_turns(
                {one.name: partial(one.seconds, "encode") for one in both}, options.rounds, warm_up=False
            )
    own_seconds, other_seconds = map(statistics.median, seconds.values())
    table = Table("sentences", OURS, THEIRS, "ratio", "largest difference", "share of the rate of products", first=12)
    share = flops(sentences) / own_seconds / product_rate()
    ratio = median_ratio(seconds[THEIRS], seconds[OURS])
    cells = (f"{own_seconds:.3f} s", f"{other_seconds:.3f} s", f"{ratio:.2f}", f"{difference:.1e}", f"{share:.2f}")
    table.row(len(sentences), *cells)
    write_json(options, {"seconds": seconds})


if __name__ == "__main__":
    main()
