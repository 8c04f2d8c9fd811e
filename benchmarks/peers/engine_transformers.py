"""Plain transformers in float32: the reference of every ratio and every cosine."""

import torch
from engine import Arguments, Array, Batch, Run, pad, serve
from transformers import BertModel

arguments = Arguments.read()
torch.set_num_threads(arguments.num_threads)


def load() -> Run:
    """Its own copy of the weights."""
    model = BertModel.from_pretrained(arguments.checkpoint).eval()

    @torch.inference_mode()
    def run(batch: Batch) -> Array:
        inputs = {name: torch.from_numpy(array) for name, array in pad(batch).items()}
        return model(**inputs).last_hidden_state.numpy()

    return run


serve(arguments, load)
