"""Greedy texts of a random T5 of T5-base's shapes: mixed adapters, no adapters, and transformers' `generate`."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from bench import Bench
from common.padding import pad
from common.texts import ours
from mixed_batches import BackboneSizes, draw_rows, save_t5
from peltier_adapters.residency.bank import Resident
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_backbone.text.packing import Encoded
from random_adapters import PRESETS, draw_adapters, load, use_kernels
from transformers import T5ForConditionalGeneration

_INPUT_TOKENS = 32


def compare_texts(bench: Bench, sizes: BackboneSizes, counts: Sequence[int], limit: int) -> None:
    """Times `count` texts of `limit` tokens, each row with its own adapter. transformers runs without adapters."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = save_t5(Path(name), sizes, num_decoder_layers=sizes.layers)
        adapters = draw_adapters(load_backbone(str(directory)), max(counts) // len(PRESETS))
        for dtype, kind in bench.dtypes.items():
            if bench.device.type == "cpu":  # a dry run: in Triton's interpreter
                stack.enter_context(use_kernels())
            backbone = load_backbone(str(directory), device=bench.device.type, dtype=dtype)
            residents = load(adapters, backbone)
            model = T5ForConditionalGeneration.from_pretrained(directory, dtype=kind).eval().to(bench.device)
            for count in counts:
                rows = draw_rows([_INPUT_TOKENS] * count, sizes.vocabulary)
                taken = bench.seconds(_calls(backbone, residents, model, rows, limit))
                ms = {contender: round(own * 1e3, 1) for contender, own in taken.items()}
                bench.record("texts", dtype=dtype, shape=f"{count} texts of {limit}", ms=ms)


def _calls(
    backbone: Backbone, residents: Sequence[Resident], model: T5ForConditionalGeneration, rows: Sequence[Encoded],
    limit: int,
) -> dict[str, Callable[[], object]]:  # fmt: skip
    ids, mask = (one.to(model.device) for one in pad([row.ids for row in rows]))
    lengths = {"max_new_tokens": limit, "min_new_tokens": limit}

    def write(own: Sequence[Resident | None]) -> object:
        with torch.inference_mode():
            return ours(backbone, rows, own, len(rows), limit)

    def generate() -> object:
        with torch.inference_mode():
            return model.generate(ids, attention_mask=mask, do_sample=False, **lengths)

    return {"mixed": lambda: write(residents), "bare": lambda: write([None]), "transformers": generate}
