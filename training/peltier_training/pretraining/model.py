"""A new T5 of a given shape."""

from typing import Any

import torch
from transformers import T5Config, T5ForConditionalGeneration

from peltier_training.pretraining.run import MAX_TOKENS, Shape


def create_model(shape: Shape, seed: int) -> T5ForConditionalGeneration:
    """A T5 with tied embeddings and the paper's initialisation."""
    torch.manual_seed(seed)
    settings: dict[str, Any] = {
        "vocab_size": shape.vocab_size,
        "d_model": shape.d_model,
        "d_kv": shape.d_kv,
        "d_ff": shape.d_ff,
        "num_layers": shape.layers,
        "num_decoder_layers": shape.layers,
        "num_heads": shape.heads,
        "n_positions": MAX_TOKENS,
        "feed_forward_proj": "gated-gelu" if shape.gated else "relu",
        "dropout_rate": 0.0,
        "decoder_start_token_id": 0,
        "tie_word_embeddings": True,
    }
    config = T5Config(**settings)
    # Eager attention, because position biases make fused attention slower for short texts.
    model = T5ForConditionalGeneration._from_config(config, attn_implementation="eager")  # type: ignore[no-untyped-call]
    assert isinstance(model, T5ForConditionalGeneration)
    return model
