"""One pretraining run: text, tokenizer, tokens, Trainer, checkpoint directory."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import T5Config, T5ForConditionalGeneration
from transformers.utils.logging import disable_progress_bar

from peltier_training.errors import TrainingError
from peltier_training.fit.checkpoint import remove_checkpoints
from peltier_training.pretraining.corpus import documents
from peltier_training.pretraining.dataset import HELD_OUT, TRAIN, HeldOutText, TrainingText, read_tokens, write_tokens
from peltier_training.pretraining.export import curve, export, write_card
from peltier_training.pretraining.pacing import Pacing
from peltier_training.pretraining.run import MAX_TOKENS, Pretraining, T5Shape
from peltier_training.pretraining.spans import fit_length
from peltier_training.pretraining.tokenizer import train_tokenizer
from peltier_training.pretraining.trainer import fit, num_examples
from peltier_training.pretraining.word_vectors import begin_with_word_vectors

_MAX_TOKENIZER_CHARS = 16_000_000  # of text to train the tokenizer on; enough for thousands of pieces
_TEXT, _RUN, _TOKENIZER = "text.json", "run.json", "tokenizer.json"


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
    """The newest complete checkpoint of the same run."""
    began = _read(run.directory / _TEXT) | _read(run.directory / _RUN)
    if not began:
        raise TrainingError(f"there is no run to resume in {run.directory}")
    for name, value in (run.text_identity() | run.identity()).items():
        if began.get(name) != value:
            raise TrainingError(f"the run in {run.directory} has another {name}: {began.get(name)}, not {value}")
    whole = [state.parent for state in run.directory.glob("checkpoint-*/trainer_state.json")]
    if not whole:
        raise TrainingError(f"there is no checkpoint to resume from in {run.directory}")
    return max(whole, key=lambda path: int(path.name.removeprefix("checkpoint-")))


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
