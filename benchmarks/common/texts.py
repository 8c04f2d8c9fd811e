"""Greedy texts of a T5 for the same inputs: by continuous decoding, and by transformers' `generate`."""

from collections.abc import Sequence

import torch
from common.padding import pad
from peltier_adapters.batch.row import Row
from peltier_adapters.generation import create_draft, generate
from peltier_adapters.residency.bank import Resident
from peltier_adapters.spec.decoding import Decoding
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from transformers import T5ForConditionalGeneration

Texts = list[list[int]]


def ours(
    backbone: Backbone, rows: Sequence[Encoded], residents: Sequence[Resident | None], num_rows: int, limit: int
) -> Texts:
    """Texts by continuous batching."""
    adapted = [Row(row, residents[number % len(residents)]) for number, row in enumerate(rows)]
    drafts = [create_draft(backbone, row, Decoding(limit)) for row in adapted]
    generate(backbone, drafts, max_rows=num_rows)
    return [draft.ids + [backbone.t5.config.eos_token_id] * (draft.finish == "stop") for draft in drafts]


@torch.inference_mode()
def theirs(model: T5ForConditionalGeneration, rows: Sequence[Encoded], num_rows: int, limit: int) -> Texts:
    """Texts by static batches, padded."""
    texts: Texts = []
    for first in range(0, len(rows), num_rows):
        ids, mask = pad([row.ids for row in rows[first : first + num_rows]])
        written = model.generate(ids, attention_mask=mask, max_new_tokens=limit, do_sample=False, num_beams=1)
        texts += [_until_end(text[1:], model.config.eos_token_id) for text in written.tolist()]
    return texts


def _until_end(text: list[int], end: int) -> list[int]:
    return text[: text.index(end) + 1] if end in text else text
