"""The README.md of a pretrained checkpoint."""

from collections.abc import Mapping, Sequence
from typing import Any

from peltier_training.pretraining.run import Pretraining
from peltier_training.pretraining.spans import SpanCorruption


def write_card(
    run: Pretraining, corruption: SpanCorruption, parameters: int, tokens: tuple[int, int],
    points: Sequence[Mapping[str, Any]],
) -> str:  # fmt: skip
    """Data, shape, training and loss."""
    shape, numbers = run.shape, run.optimization
    steps = max((int(point["step"]) for point in points), default=0)
    seen = steps * numbers.batch_size * corruption.text_length
    held_out = [point for point in points if "held_out_loss" in point]
    rows = "\n".join(f"| {point['step']} | {point['held_out_loss']:.3f} |" for point in held_out)
    begun = "as word vectors of the text (PPMI, SVD)" if numbers.word_vectors else "at random"
    feed_forward = "gated GELU" if shape.gated else "ReLU"
    return f"""---
library_name: transformers
pipeline_tag: text2text-generation
---

# {run.output.name}

A small T5 that `peltier pretrain t5` made from plain text, for adapters to be trained on.

- **Model**: {parameters:,} parameters in bfloat16; {shape.layers} + {shape.layers} layers, d_model {shape.d_model}, {shape.heads} heads of {shape.d_kv}, d_ff {shape.d_ff} ({feed_forward}), tied embeddings of {shape.vocab_size} tokens.
- **Data**: {", ".join(path.name for path in run.texts)}: {tokens[0]:,} tokens to train on, and {tokens[1]:,} held out (every 200th document).
- **Objective**: span corruption, {corruption.num_noise} of {corruption.text_length} tokens in {corruption.num_spans} spans, inputs of {corruption.input_length} tokens.
- **Training**: {steps:,} steps of {numbers.batch_size} texts, {seen:,} tokens ({seen / tokens[0]:.2f} passes), AdamW at {numbers.learning_rate:g} of each parameter's size, cosine to zero, {run.dtype}, embeddings begun {begun}, seed {numbers.seed}.

| step | held-out loss (nats a target token) |
| --- | --- |
{rows}
"""  # noqa: E501 - a paragraph is a line
