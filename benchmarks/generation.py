"""Continuous decoding against transformers' `generate` with static batches: tokens per second for the same texts.

    .venv/bin/python benchmarks/generation.py --backbone DIR --data e2e_nlg/validation.jsonl.gz [--rows 32]

DIR is a T5 checkpoint fine-tuned on the task of the data, such as E2E, so that texts have realistic lengths. `--data`
has a `meaning_representation` column. transformers decodes batches of `--rows` inputs in file order, each until its
longest text has ended. Peltier takes a new input as soon as a text ends, with at most `--rows` at a time. Both decode
greedily on one thread, in float32 (`--dtype` applies to Peltier only, and changes a few texts). `32 adapters`
is Peltier with 32 adapters of four presets, which write other texts. Times are process CPU seconds of interleaved
rounds. The end of a text counts as a token.
"""

import argparse
import gzip
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from common.adapters import make_artifact
from common.passes import FOUR
from common.texts import Texts, ours, theirs
from peltier_adapters.residency.bank import Banks
from peltier_backbone.load import DTYPES, load_backbone
from transformers import T5ForConditionalGeneration


def load_inputs(path: Path, count: int) -> list[str]:
    """Distinct meaning representations in file order."""
    with gzip.open(path, "rt") as file:
        texts = dict.fromkeys(json.loads(line)["meaning_representation"] for line in file)
    return [*texts][:count]


def measure(calls: dict[str, Callable[[], Texts]], rounds: int) -> tuple[dict[str, list[float]], dict[str, Texts]]:
    """CPU seconds a round and the texts of each contender, after one warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    texts: dict[str, Texts] = {}
    for number in range(rounds + 1):
        for name, call in calls.items():
            start = time.process_time()
            texts[name] = call()
            if number:
                seconds[name].append(time.process_time() - start)
    return seconds, texts


def report(seconds: dict[str, list[float]], texts: dict[str, Texts]) -> None:
    rates = {
        name: [sum(map(len, texts[name])) / second for second in own] for name, own in seconds.items()
    }  # tokens a second, round by round
    print(f"{'':24}{'tokens':>8}{'tokens/s':>10}{'x transformers':>16}")
    for name, own in rates.items():
        ratio = statistics.median(mine / base for base, mine in zip(rates["transformers"], own, strict=True))
        print(f"{name:24}{sum(map(len, texts[name])):8}{statistics.median(own):10.0f}{ratio:16.2f}")
    same = sum(one == other for one, other in zip(texts["transformers"], texts["peltier"], strict=True))
    lengths = sorted(map(len, texts["peltier"]))
    middle = statistics.median(lengths)
    print(f"same texts: {same} of {len(lengths)}; lengths {lengths[0]} to {lengths[-1]}, median {middle:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--inputs", type=int, default=256)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--limit", type=int, default=96, help="tokens of a text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", default="float32", choices=[*DTYPES], help="ours; theirs is float32")
    options = parser.parse_args()
    torch.set_num_threads(1)
    backbone = load_backbone(options.backbone, dtype=options.dtype)
    model = T5ForConditionalGeneration.from_pretrained(options.backbone, dtype=torch.float32).eval()
    rows = [backbone.tokenizer.encode(text, max_tokens=128) for text in load_inputs(options.data, options.inputs)]
    banks = Banks(backbone)
    adapters = [banks.add(make_artifact(backbone, preset, number)) for number in range(8) for preset in FOUR]
    calls: dict[str, Callable[[], Texts]] = {
        "transformers": lambda: theirs(model, rows, options.rows, options.limit),
        "peltier": lambda: ours(backbone, rows, [None], options.rows, options.limit),
        "peltier, 32 adapters": lambda: ours(backbone, rows, adapters, options.rows, options.limit),
    }
    print("kernels:", backbone.kernels)
    report(*measure(calls, options.rounds))


if __name__ == "__main__":
    main()
