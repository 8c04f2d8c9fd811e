"""How long do short texts wait beside long ones, on a ModernBERT of 8,192 tokens?

    .venv/bin/python benchmarks/long_texts.py [--rate 20] [--seconds 20] [--rounds 5] [--tokens 8192] [--threads 2]
        [--kernels plain]

Random weights, 6 layers of width 384. Sentences arrive at `--rate` a second, independent of earlier answers. In each
round they are alone for `--seconds`, and then beside a caller that sends one text of `--tokens` after another. The
ratios are those of a round's two parts, and their median is printed last. With `--one-queue` no text counts as long:
that is how it was before long texts had a thread of their own.

Small: --rate 5 --seconds 1 --rounds 1 --tokens 1500 --threads 1
"""

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from common.adapters import make_bytes, make_task
from common.callers import ask_at, ask_for, poisson, predict_bytes, run
from common.harness import Table, create_parser, median_ratio, percentile
from common.serving import serving
from peltier_backbone.load import load_backbone
from peltier_client import Client
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import ModernBertConfig, ModernBertModel

PERCENTS, CONNECTIONS = (50, 90, 99), 16
MAX_TOKENS = 8192
# Enough that a quarter of it, from which on a text is long, is more than any text has.
ONE_QUEUE = ["--max-batch-tokens", str(8 * MAX_TOKENS)]


def save_checkpoint(directory: Path) -> None:
    """A random ModernBERT whose tokenizer makes one token of each word."""
    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=2000, hidden_size=384, intermediate_size=576, num_hidden_layers=6, num_attention_heads=6,
        max_position_embeddings=MAX_TOKENS, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
        sep_token_id=2,
    )  # fmt: skip
    ModernBertModel(config).eval().save_pretrained(directory)
    tokenizer = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(directory / "tokenizer.json"))


async def ask_beside(
    url: str, arrivals: Sequence[tuple[float, bytes]], long: bytes | None, seconds: float
) -> tuple[list[float], int]:
    """The latencies of the arrivals, and how many long texts were answered meanwhile."""
    if long is None:
        return await ask_at(url, arrivals, CONNECTIONS), 0
    beside = asyncio.create_task(ask_for(url, [long], 1, seconds))
    latencies = await ask_at(url, arrivals, CONNECTIONS)
    return latencies, len(await beside)


def main() -> None:
    parser = create_parser(__doc__, rate=20.0, seconds=20.0, rounds=5, tokens=MAX_TOKENS, threads=2, kernels="auto")
    parser.add_argument("--one-queue", action="store_true", help="compute long texts like all others")
    given = parser.parse_args()
    draw = random.Random(0)
    table = Table("long texts", *(f"p{percent} ms" for percent in PERCENTS), "answered")
    found: dict[bool, list[list[float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as directory:
        save_checkpoint(Path(directory))
        backbone = load_backbone(directory)
        data = make_bytes(backbone, "compacter", 0, task=make_task(backbone, max_length=MAX_TOKENS))
        flags = ["--backbone", directory, "--threads", str(given.threads), "--kernels", given.kernels]
        flags += ONE_QUEUE if given.one_queue else []
        with serving(*flags, environment={"OMP_NUM_THREADS": str(given.threads)}) as server:
            with Client(server.url) as client:
                client.upload(data, name="demo")
            long = predict_bytes("demo", "word " * given.tokens)
            began = time.monotonic()
            (answer,) = [body for _, body in run(ask_for(server.url, [long], 1, 0.001))][:1]
            print(f"a long text alone: {time.monotonic() - began:.1f} s, {json.loads(answer)['usage']}")
            for _ in range(given.rounds):
                for beside in (False, True):
                    moments = list(poisson(given.rate, given.seconds, draw.expovariate))
                    arrivals = [(moment, predict_bytes("demo", "word " * draw.randint(5, 40))) for moment in moments]
                    latencies, answered = run(ask_beside(server.url, arrivals, long if beside else None, given.seconds))
                    found[beside].append([1e3 * percentile(latencies, percent) for percent in PERCENTS])
                    table.row("yes" if beside else "no", *(f"{value:.1f}" for value in found[beside][-1]), answered)
    for place, percent in enumerate(PERCENTS):
        alone, together = ([round_[place] for round_ in found[state]] for state in (False, True))
        print(f"p{percent} beside long texts, x alone: {median_ratio(together, alone):.2f}")


if __name__ == "__main__":
    main()
