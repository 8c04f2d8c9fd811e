"""Mixed batches against plain transformers, on one thread: ratios of interleaved rounds within one run.

    .venv/bin/python benchmarks/throughput.py [--data SST2/validation.jsonl.gz] [--dtype bfloat16]

`transformers` is the plain model with no adapters, padded to the longest row of each random batch of 32; `sorted` the
same with batches sorted by length. `bare` is our backbone without adapters; `linear maps alone` runs nothing but its
frozen products, the floor that no arrangement of the rest can pass. Rates count sentences.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from adapters import make_artifact
from peltier_adapters.bank import Banks
from peltier_adapters.batch import forward
from peltier_adapters.row import Row
from peltier_backbone.checkpoint import find_checkpoint
from peltier_backbone.load import DTYPES, Backbone, load_backbone
from peltier_backbone.packing import Encoded
from sentences import load_sentences
from transformers import BertModel

BATCH = 32
FOUR = ("compacter", "unipelt-apl", "lora", "adamix")
Rounds = dict[str, list[float]]


def transformers_pass(model: BertModel, batches: list[list[Encoded]]) -> None:
    """Plain transformers over padded batches."""
    for rows in batches:
        width = max(map(len, rows))
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.tensor(row.ids)
            mask[number, : len(row)] = 1
        with torch.inference_mode():
            model(input_ids=ids, attention_mask=mask)


def batches_of(rows: list[Encoded]) -> list[list[Encoded]]:
    return [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]


def mixed_batches(exact: Backbone, banks: Banks, presets: tuple[str, ...], rows: list[Encoded]) -> list[list[Row]]:
    """Each batch holds 32 distinct adapters, as many of each preset, in random order."""
    residents = [
        banks.add(make_artifact(exact, preset, number)) for preset in presets for number in range(BATCH // len(presets))
    ]
    draw = random.Random(0)
    return [
        [Row(row, resident) for row, resident in zip(batch, draw.sample(residents, BATCH), strict=True)]
        for batch in batches_of(rows)
    ]


@torch.inference_mode()
def linear_maps(backbone: Backbone, sizes: list[int]) -> None:
    """The frozen products of a forward over batches of `sizes` tokens."""
    for size in sizes:
        hidden = torch.zeros(size, backbone.config.hidden_size, dtype=backbone.dtype)
        for layer in backbone.model.layers:
            layer.query_key_value(hidden)
            layer.attention_output(hidden)
            layer.output(layer.intermediate.gelu(hidden))


def contenders(backbone: Backbone, exact: Backbone, rows: list[Encoded]) -> dict[str, Callable[[], None]]:
    """What is timed: each call answers every sentence once. transformers always runs in float32, its default."""
    model = BertModel.from_pretrained(find_checkpoint("minilm")).eval()
    banks = Banks(backbone)
    compacters = mixed_batches(exact, banks, ("compacter",), rows)
    four = mixed_batches(exact, banks, FOUR, rows)
    packed = [backbone.pack(batch) for batch in batches_of(rows)]
    by_length = batches_of(sorted(rows, key=len))

    def bare() -> None:
        with torch.inference_mode():
            for batch in packed:
                backbone.model(batch)

    return {
        "transformers": lambda: transformers_pass(model, batches_of(rows)),
        "transformers, sorted": lambda: transformers_pass(model, by_length),
        "linear maps alone": lambda: linear_maps(backbone, [one.starts[-1] for one in packed]),
        "bare": bare,
        "32 compacters": lambda: [forward(backbone, batch) for batch in compacters] and None,
        "32 adapters of 4 presets": lambda: [forward(backbone, batch) for batch in four] and None,
    }


def measure(calls: dict[str, Callable[[], None]], rounds: int) -> Rounds:
    """Process CPU seconds of each contender, round by round, after one warm-up."""
    seconds: Rounds = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if number:
                seconds[name].append(time.process_time() - start)
    return seconds


def report(seconds: Rounds, sentences: int, tokens: int) -> None:
    print(f"{sentences} sentences, {tokens} tokens, batches of {BATCH}, one thread, {torch.get_num_threads()=}")
    print(f"{'':28}{'sentences/s':>12}{'x transformers':>16}{'x sorted':>10}{'x bare':>8}")
    for name, own in seconds.items():
        ratios = [
            statistics.median(base / mine for base, mine in zip(seconds[other], own, strict=True))
            for other in ("transformers", "transformers, sorted", "bare")
        ]
        print(f"{name:28}{sentences / statistics.median(own):12.0f}{ratios[0]:16.2f}{ratios[1]:10.2f}{ratios[2]:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="SST-2's validation.jsonl.gz")
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32")
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write the seconds of each round here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    exact = load_backbone("minilm")
    backbone = load_backbone("minilm", dtype=options.dtype)
    sentences = load_sentences(options.data, options.sentences)
    rows = [backbone.tokenizer.encode(text, max_tokens=128) for text in sentences]
    calls = contenders(backbone, exact, rows)
    print("kernels:", backbone.kernels)
    seconds = measure(calls, options.rounds)
    report(seconds, len(rows), sum(map(len, rows)))
    if options.json:
        options.json.write_text(json.dumps(seconds))


if __name__ == "__main__":
    main()
