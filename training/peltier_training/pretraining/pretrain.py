"""One pretraining run: text, tokenizer, tokens, Trainer, checkpoint directory."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, T5Config, T5ForConditionalGeneration
from transformers.utils.logging import disable_progress_bar

from peltier_training.errors import TrainingError
from peltier_training.fit.checkpoint import newest_checkpoint, remove_checkpoints
from peltier_training.pretraining.corpus import documents
from peltier_training.pretraining.dataset import (
    HELD_OUT,
    TRAIN,
    HeldOutText,
    SpanCorruption,
    TrainingText,
    fit_length,
    read_tokens,
    write_tokens,
)
from peltier_training.pretraining.run import MAX_TOKENS, Pretraining, T5Shape
from peltier_training.pretraining.tokenizer import train_tokenizer, write_tokenizer
from peltier_training.pretraining.trainer import Pacing, fit, num_examples
from peltier_training.pretraining.word_vectors import begin_with_word_vectors

_MAX_TOKENIZER_CHARS = 16_000_000  # of text to train the tokenizer on; enough for thousands of pieces
_TEXT, _RUN, _TOKENIZER = "text.json", "run.json", "tokenizer.json"
_GENERATION = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}


@dataclass(frozen=True)
class PretrainingOutcome:
    """The result of a call. `finished` is false if `call_minutes` ended it, and then nothing was written."""

    finished: bool
    steps: int
    held_out_loss: float | None


def pretrain(run: Pretraining) -> PretrainingOutcome:
    """Pretrain a T5 on plain text, and write it to `run.output` at the end of its budget."""
    run.check()
    disable_progress_bar()  # type: ignore[no-untyped-call]  # of files; the run has its own
    pacing = Pacing(None if run.budget.call_minutes is None else 60 * run.budget.call_minutes)
    checkpoint = _resume(run) if run.resume else None
    if checkpoint is None:
        _prepare(run)
    train, held_out = read_tokens(run.directory / TRAIN), read_tokens(run.directory / HELD_OUT)
    corruption = fit_length(run.optimization.input_length, run.shape.vocab_size - 1)
    seed = run.optimization.seed
    texts = TrainingText(train, corruption, seed=seed, size=num_examples(run)), HeldOutText(held_out, corruption)
    model = create_model(run.shape, seed)
    if checkpoint is None and run.optimization.word_vectors:
        begin_with_word_vectors(model.shared.weight, train, seed)
    state = fit(run, model, texts, pacing, checkpoint)
    points = curve(state.log_history)
    if pacing.finished:
        card = write_card(run, corruption, model.num_parameters(), (len(train), len(held_out)), points)
        export(model, Tokenizer.from_file(str(run.directory / _TOKENIZER)), card, points, run.output)
    return PretrainingOutcome(pacing.finished, state.global_step, _last_held_out_loss(points))


def _last_held_out_loss(points: Sequence[Mapping[str, float]]) -> float | None:
    return next((point["held_out_loss"] for point in reversed(points) if "held_out_loss" in point), None)


def _prepare(run: Pretraining) -> None:
    """Prepare the tokenizer and the tokens of a new run, or keep those of an earlier run on the same text."""
    run.directory.mkdir(parents=True, exist_ok=True)
    remove_checkpoints(run.directory)
    if _read(run.directory / _TEXT) != run.text_identity():
        (run.directory / _TEXT).unlink(missing_ok=True)
        tokenizer = train_tokenizer(_sample(run), run.shape.vocab_size)
        tokenizer.save(str(run.directory / _TOKENIZER))
        write_tokens(documents(run.texts), tokenizer, run.directory)
        _write(run.directory / _TEXT, run.text_identity())
    _write(run.directory / _RUN, run.identity())


def _sample(run: Pretraining) -> list[str]:
    """Evenly spaced documents, with about as many characters as the tokenizer needs."""
    total = sum(len(document) for document in documents(run.texts))
    every = max(total // _MAX_TOKENIZER_CHARS, 1)
    sample = [document for number, document in enumerate(documents(run.texts)) if number % every == 0]
    if not sample:
        raise TrainingError("the text is empty")
    return sample


def _resume(run: Pretraining) -> Path:
    began = _read(run.directory / _TEXT) | _read(run.directory / _RUN)
    if not began:
        raise TrainingError(f"there is no run to resume in {run.directory}")
    for name, value in (run.text_identity() | run.identity()).items():
        if began.get(name) != value:
            raise TrainingError(f"the run in {run.directory} has another {name}: {began.get(name)}, not {value}")
    return newest_checkpoint(run.directory)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found


def _write(path: Path, identity: dict[str, Any]) -> None:
    path.write_text(json.dumps(identity, indent=2) + "\n")


def create_model(shape: T5Shape, seed: int) -> T5ForConditionalGeneration:
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
    path.write_text("".join(json.dumps(point) + "\n" for point in points))
