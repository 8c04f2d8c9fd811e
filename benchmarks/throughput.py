"""Mixed batches against plain transformers, on one thread: ratios of interleaved rounds within one run.

    .venv/bin/python benchmarks/throughput.py [--data SST2/validation.jsonl.gz] [--dtype bfloat16]

It measures sentences of SST-2's lengths, then rows that need no padding (32 x 64 and 32 x 16 tokens), then batches of
one to eight presets, then batches of all kinds of tasks (labels, tags, spans, embeddings, rankings). `transformers` is
the plain model without adapters, padded to the longest row of each random batch of 32; `sorted` has batches sorted by
length. `bare` is Peltier's backbone without adapters. `linear maps alone` computes only its frozen products, which is
the upper bound of the rate. Rates count rows.
"""

import random
import statistics
from functools import partial

import torch
from common.harness import (
    Call,
    Rounds,
    Table,
    add_data,
    add_json,
    create_parser,
    median,
    ratios,
    time_by_turns,
    write_json,
)
from common.passes import BATCH, FOUR, Adapters, Batches, bare_pass, batches_of, mixed_pass, transformers_pass
from common.sentences import load_sentences
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.load import DTYPES, load_backbone
from peltier_backbone.machine.heap import keep_freed_memory
from peltier_backbone.text.packing import Encoded
from transformers import BertModel

PRESETS = (*FOUR, "houlsby", "prefix", "bitfit", "pfeiffer")
SWEEP = (1, 2, 3, 4, 6, 8)
Calls = dict[str, Call]
BASES = ("transformers", "transformers, sorted", "bare")


def even_batches(width: int, count: int) -> Batches:
    """Batches of random tokens in rows of one length."""
    draw = random.Random(width)
    rows = [tuple(draw.randrange(1000, 20_000) for _ in range(width)) for _ in range(count * BATCH)]
    return batches_of([Encoded(row, (0,) * width) for row in rows])


@torch.inference_mode()
def linear_maps(backbone: Backbone, sizes: list[int]) -> None:
    """The frozen products of a forward over batches of `sizes` tokens."""
    for size in sizes:
        hidden = torch.zeros(size, backbone.config.hidden_size, dtype=backbone.dtype)
        for layer in backbone.model.layers:
            layer.query_key_value(hidden)
            layer.attention_output(hidden)
            layer.output(layer.intermediate(hidden))


def against_transformers(backbone: Backbone, adapters: Adapters, batches: Batches, *, padded: bool) -> Calls:
    """What is timed: each call answers every row once. transformers always runs in float32, its default."""
    model = BertModel.from_pretrained(find_checkpoint("minilm")).eval()
    calls: Calls = {"transformers": partial(transformers_pass, model, batches)}
    if padded:
        by_length = batches_of(sorted((row for batch in batches for row in batch), key=len))
        calls["transformers, sorted"] = partial(transformers_pass, model, by_length)
        calls["linear maps alone"] = partial(linear_maps, backbone, [sum(map(len, batch)) for batch in batches])
    calls["bare"] = partial(bare_pass, backbone, batches)
    for name, presets in {"32 compacters": ("compacter",), "32 adapters of 4 presets": FOUR}.items():
        calls[name] = partial(mixed_pass, backbone, adapters.mix(batches, presets))
    return calls


def by_presets(backbone: Backbone, adapters: Adapters, batches: Batches) -> Calls:
    """Batches of 32 distinct adapters of ever more presets."""
    calls: Calls = {"bare": partial(bare_pass, backbone, batches)}
    for count in SWEEP:
        name = f"{count} presets, + {PRESETS[count - 1]}" if count > 1 else "1 preset, compacter"
        calls[name] = partial(mixed_pass, backbone, adapters.mix(batches, PRESETS[:count]))
    return calls


def by_kinds(backbone: Backbone, adapters: Adapters, batches: Batches) -> Calls:
    """Batches of 32 distinct adapters of four presets: all classifications, and all kinds of tasks."""
    return {
        "bare": partial(bare_pass, backbone, batches),
        "classifications": partial(mixed_pass, backbone, adapters.mix(batches, FOUR)),
        "all kinds of tasks": partial(mixed_pass, backbone, adapters.mix_kinds(batches)),
    }


def report(title: str, seconds: Rounds, batches: Batches) -> None:
    """Prints one line per contender: its rate, and its ratio to the contenders of the same rounds."""
    rows, tokens = sum(map(len, batches)), sum(len(row) for batch in batches for row in batch)
    bases = [base for base in BASES if base in seconds]
    print(f"\n{title}: {rows} rows, {tokens} tokens, batches of {BATCH}, one thread, {torch.get_num_threads()=}")
    table = Table("", "rows/s", *(f"x {base}" for base in bases))
    for name, own in seconds.items():
        beside = (median(ratios(seconds[base], own)) for base in bases)
        table.row(name, f"{rows / statistics.median(own):.0f}", *beside)


def main() -> None:
    parser = create_parser(__doc__, sentences=96, rounds=3)
    add_data(parser)
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32")
    add_json(parser, "the seconds of each round")
    options = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    exact = load_backbone("minilm")
    backbone = load_backbone("minilm", dtype=options.dtype)
    sentences = load_sentences(options.data, options.sentences)
    ragged = batches_of([backbone.tokenizer.encode(text, max_tokens=128) for text in sentences])
    adapters = Adapters(backbone, exact)
    print("kernels:", backbone.kernels)
    even = {"32 x 64": even_batches(64, 1), "32 x 16": even_batches(16, 2)}
    tables: dict[str, Rounds] = {}

    def show(title: str, calls: Calls, batches: Batches = ragged) -> None:
        tables[title] = time_by_turns(calls, options.rounds)
        report(title, tables[title], batches)

    show("lengths of SST-2", against_transformers(backbone, adapters, ragged, padded=True))
    for title, batches in even.items():
        show(title, against_transformers(backbone, adapters, batches, padded=False), batches)
    show("presets in a batch", by_presets(backbone, adapters, ragged))
    show("kinds of tasks in a batch", by_kinds(backbone, adapters, ragged))
    write_json(options, tables)


if __name__ == "__main__":
    main()
