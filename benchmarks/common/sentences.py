"""Sentences with the lengths of SST-2's validation set, for benchmarks whose result depends only on lengths.

The repository cannot contain the set; `--data` reads it from a file. Without it, sentences of the sample data are
joined or cut to the same distribution of lengths (in words, by deciles of the set), so that the amount of padding is
similar.
"""

import gzip
import json
import random
from pathlib import Path

_DECILES = (2, 8, 11, 14, 16, 19, 21, 24, 27, 32, 47)
_SAMPLE = Path(__file__).parents[2] / "examples/data/clinc150/validation.jsonl.gz"


def load_sentences(path: Path | None, count: int, seed: int = 0) -> list[str]:
    """`count` sentences in random order; `path` is a .jsonl.gz with a `sentence` column."""
    draw = random.Random(seed)
    if path is not None:
        with gzip.open(path, "rt") as file:
            sentences = [json.loads(line)["sentence"] for line in file]
        return draw.sample(sentences, count)
    with gzip.open(_SAMPLE, "rt") as file:
        words = [word for line in file for word in json.loads(line)["text"].split()]
    return [" ".join(_take(words, draw)) for _ in range(count)]


def _take(words: list[str], draw: random.Random) -> list[str]:
    decile = draw.randrange(len(_DECILES) - 1)
    length = draw.randint(_DECILES[decile], _DECILES[decile + 1])
    start = draw.randrange(len(words) - length)
    return words[start : start + length]
