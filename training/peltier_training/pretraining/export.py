"""The Hugging Face checkpoint directory of a finished run."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import GenerationConfig, T5ForConditionalGeneration

from peltier_training.errors import TrainingError
from peltier_training.pretraining.run import MAX_TOKENS, Pretraining
from peltier_training.pretraining.spans import SpanCorruption
from peltier_training.pretraining.tokenizer import write_tokenizer

_GENERATION = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}


def export(
    model: T5ForConditionalGeneration,
    tokenizer: Tokenizer,
    card: str,
    points: Sequence[Mapping[str, Any]],
    output: Path,
) -> None:
    """Write the bfloat16 checkpoint, its tokenizer, README.md and loss.jsonl to `output` atomically."""
    partial = output.with_name(f".{output.name}.{os.getpid()}.partial")
    try:
        partial.mkdir()
        model.generation_config = GenerationConfig.from_dict(_GENERATION)
        model.bfloat16().save_pretrained(partial)
        write_tokenizer(tokenizer, partial, MAX_TOKENS)
        write_curve(partial / "loss.jsonl", points)
        (partial / "README.md").write_text(card)
        os.replace(partial, output)  # replaces an empty folder
    except OSError as error:
        raise TrainingError(f"output {output} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


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


def curve(history: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """The Trainer's log as points: the step with the training loss since the last point and the learning rate, or with
    the held-out loss. Losses are in nats per token."""
    names = {"loss": "loss", "learning_rate": "learning_rate", "eval_loss": "held_out_loss"}
    points = []
    for entry in history:
        point = {names[name]: entry[name] for name in names if name in entry}
        if "loss" in entry or "eval_loss" in entry:
            points.append({"step": entry["step"]} | point)
    return points


def write_curve(path: Path, points: Sequence[Mapping[str, float]]) -> None:
    """Write one JSON line per point."""
    path.write_text("".join(json.dumps(point) + "\n" for point in points))
