"""What dropout in the frozen backbone costs a training step on MiniLM, by method.

    .venv/bin/python benchmarks/backbone_dropout.py [--data SST2/train.jsonl.gz] [--preset lora] [--rounds 5]

A step is a forward and a backward pass over 16 rows, and AdamW, on one thread. Times are CPU seconds; steps with and
without dropout take turns.
"""

import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from common.harness import create_parser, median_ratio, time_by_turns
from common.sentences import load_sentences
from peltier_adapters.presets.presets import find_preset
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_training.models.model import Dropout, HeadedAdapter
from torch.nn import functional as F

PRESETS = ("compacter", "lora", "unipelt-apl", "adamix")
ROWS, MAX_TOKENS, RATE = 16, 64, 0.1


def create_step(backbone: Backbone, preset: str, rate: float, texts: list[str]) -> Callable[[], None]:
    """One step of the optimizer over all `texts`."""
    found = find_preset(preset)
    settings = found.settings({}, backbone.config)
    parts = found.compose(settings, backbone.config, outputs=2)
    model = HeadedAdapter(backbone, parts, settings, seed=0, dropout=Dropout(0.1, rate)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    packed = backbone.pack([backbone.tokenizer.encode(text, max_tokens=MAX_TOKENS) for text in texts])
    labels = torch.arange(len(texts)) % 2

    def step() -> None:
        F.cross_entropy(model(packed), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--data", type=Path, help="SST-2's train.jsonl.gz")
    parser.add_argument("--preset", action="append", choices=PRESETS)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    backbone = load_backbone("minilm", device="cpu")
    texts = load_sentences(options.data, ROWS)
    print("| preset | ms a step without | with | ratio |\n| --- | --: | --: | --: |")
    for preset in options.preset or PRESETS:
        steps = {rate: create_step(backbone, preset, rate, texts) for rate in (0.0, RATE)}
        seconds = time_by_turns(steps, options.rounds)
        without, with_dropout = (1000 * statistics.median(seconds[rate]) for rate in (0.0, RATE))
        ratio = median_ratio(seconds[RATE], seconds[0.0])
        print(f"| {preset} | {without:.0f} | {with_dropout:.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
