"""The Hugging Face checkpoint directory of a finished run."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import GenerationConfig, T5ForConditionalGeneration

from peltier_training.errors import TrainingError
from peltier_training.pretraining.curve import write_curve
from peltier_training.pretraining.run import MAX_TOKENS
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
