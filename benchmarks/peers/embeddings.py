"""Embeddings of MiniLM by Peltier and by sentence-transformers, of the same sentences, on one thread in float32.

    .venv/bin/python benchmarks/peers/embeddings.py [--data DIR/sst2/validation.jsonl.gz] [--sentences 400] [--rounds 5]

Each library runs in its own process, and they take turns. Times are CPU seconds, from texts to vectors. Both compute
batches of 32 sentences in the order of their lengths. The vectors are compared before.

The ratio has a bound: the linear maps need 21 MFLOP for each token, and the last column says what share of the
processor's rate of float32 multiplications, as measured by a product of large matrices, these maps are alone.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from contender import Contender
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.load import load_backbone
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from common.sentences import load_sentences

NAMES = ("peltier", "sentence-transformers")
_SCRIPTS = ("embed_peltier.py", "embed_sentence_transformers.py")
_ORIGINS = (None, "sentence-transformers")


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
    rates = []
    for _ in range(5):
        start = time.process_time()
        a @ b
        rates.append(2 * 1536**3 / (time.process_time() - start))
    return max(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a .jsonl.gz with a sentence column; else sentences of such lengths")
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the seconds of each round here")
    options = parser.parse_args()
    sentences = load_sentences(options.data, options.sentences)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "texts.json").write_text(json.dumps(sentences))
        arguments = str(find_checkpoint("minilm")), str(folder)
        contenders = [Contender(*one, *arguments) for one in zip(NAMES, _SCRIPTS, _ORIGINS, strict=True)]
        try:
            for one in contenders:
                one.seconds("save")
            difference = np.abs(np.subtract(*(np.load(folder / f"{name}.npy") for name in NAMES))).max()
            assert difference < 1e-5, difference
            seconds = [[one.seconds("encode") for one in contenders] for _ in range(options.rounds)]
        finally:
            for one in contenders:
                one.close()
    own, other = (statistics.median(column) for column in zip(*seconds, strict=True))
    ratio = statistics.median(theirs / ours for ours, theirs in seconds)
    table = Table("sentences", *NAMES, "ratio", "largest difference", "share of the rate of products")
    share = flops(sentences) / own / product_rate()
    cells = (f"{own:.3f} s", f"{other:.3f} s", f"{ratio:.2f}", f"{difference:.1e}", f"{share:.2f}")
    table.add_row(str(len(sentences)), *cells)
    Console(width=120).print(table)
    if options.json:
        options.json.write_text(json.dumps({"seconds": dict(zip(NAMES, zip(*seconds, strict=True), strict=True))}))


if __name__ == "__main__":
    main()
