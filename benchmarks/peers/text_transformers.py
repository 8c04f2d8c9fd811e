"""transformers' `generate` in float32, greedy, with static batches: the reference of every ratio and every text."""

import torch
from common.texts import theirs
from engine import Arguments, Batch
from peltier_backbone.text.packing import Encoded
from text_engine import serve
from transformers import T5ForConditionalGeneration

arguments = Arguments.read()
torch.set_num_threads(arguments.num_threads)
model = T5ForConditionalGeneration.from_pretrained(arguments.checkpoint, dtype=torch.float32).eval()


def write(rows: Batch, num_rows: int, limit: int) -> Batch:
    """Each batch until its longest text has ended."""
    return theirs(model, [Encoded(tuple(row), (0,) * len(row)) for row in rows], num_rows, limit)


serve(arguments, write)
