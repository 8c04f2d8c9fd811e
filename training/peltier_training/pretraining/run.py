"""The settings of one pretraining run."""

import hashlib
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from peltier_training.errors import TrainingError
from peltier_training.pretraining.corpus import check_files
from peltier_training.pretraining.tokenizer import MAX_VOCAB, MIN_VOCAB

MAX_TOKENS = 512  # of an input, as in T5

_AT_LEAST = {
    "d_model": 1, "layers": 1, "heads": 1, "d_ff": 1, "d_kv": 1, "batch_size": 1, "input_length": 8, "seed": 0,
    "weight_decay": 0.0, "warmup": 0.0,
}  # fmt: skip


@dataclass(frozen=True)
class T5Shape:
    """The size of the model: `layers` in the encoder and as many in the decoder."""

    vocab_size: Annotated[int, Option(help="Size of the vocabulary, with 100 sentinels and 256 bytes.")] = 8192
    d_model: Annotated[int, Option(help="Width of the model.")] = 256
    layers: Annotated[int, Option(help="Layers of the encoder, and of the decoder.")] = 4
    heads: Annotated[int, Option(help="Attention heads.")] = 4
    d_ff: Annotated[int, Option(help="Width of the feed-forward layers.")] = 1024
    d_kv: Annotated[int, Option(help="Width of a head.")] = 64
    gated: Annotated[bool, Option("--gated", help="Use the gated GELU feed-forward of T5 1.1.")] = False


@dataclass(frozen=True)
class Optimization:
    """How the model is trained."""

    learning_rate: Annotated[
        float,
        Option(help="Highest learning rate, relative to each parameter's size; warm-up, then cosine decay to zero."),
    ] = 2e-2
    batch_size: Annotated[int, Option(help="Texts per step.")] = 32
    input_length: Annotated[int, Option(help="Tokens of an input.")] = 128
    warmup: Annotated[float, Option(help="Fraction of the budget with a rising learning rate.")] = 0.02
    weight_decay: Annotated[float, Option(help="AdamW weight decay.")] = 0.0
    word_vectors: Annotated[
        bool, Option("--word-vectors", help="Initialise the embeddings with word vectors of the text.")
    ] = False
    seed: Annotated[int, Option(help="Seed of initialisation, order and spans.")] = 0


@dataclass(frozen=True)
class PretrainingBudget:
    """How long to train: `steps` or `minutes`."""

    steps: Annotated[int | None, Option(help="The budget in steps.")] = None
    minutes: Annotated[float | None, Option(help="The budget in minutes of training, over all calls.")] = None
    call_minutes: Annotated[
        float | None, Option(help="Stop with a checkpoint after this time; continue with --resume.")
    ] = None

    def check(self) -> None:
        """Raise a `TrainingError` unless there is exactly one budget above 0."""
        if (self.steps is None) == (self.minutes is None):
            raise TrainingError("give either steps or minutes as the budget")
        for name, value in asdict(self).items():
            if value is not None and not 0 < value < math.inf:
                raise TrainingError(f"{name} is {value}; it must be a number above 0")


@dataclass(frozen=True)
class Pretraining:
    """One run: `output` is the checkpoint to write; `directory` holds the tokenizer, the tokenised text, checkpoints
    and TensorBoard events."""

    texts: Annotated[
        tuple[Path, ...], Option("--text", help="Plain text, .txt (.gz, .xz); blank lines separate documents.")
    ]
    output: Annotated[Path, Option(help="The checkpoint directory to write.")]
    directory: Path
    budget: PretrainingBudget
    shape: T5Shape = T5Shape()
    optimization: Optimization = Optimization()
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto"
    dtype: Annotated[str, Option(help="Precision of matrix products in training: float32 or bfloat16.")] = "float32"
    resume: Annotated[
        bool, Option("--resume", help="Continue from the newest checkpoint; without it, earlier ones are removed.")
    ] = False

    def check(self) -> None:
        """Raise a `TrainingError` for a mistake that shows without reading texts."""
        from peltier_backbone.load import resolve_device  # imports torch

        check_files(self.texts)
        self.budget.check()
        _check_numbers(asdict(self.shape) | asdict(self.optimization))
        if self.output.exists() and (not self.output.is_dir() or any(self.output.iterdir())):
            raise TrainingError(f"output {self.output} exists and is not an empty folder")
        if not self.output.parent.is_dir():
            raise TrainingError(f"output {self.output} cannot be written: its parent folder does not exist")
        resolve_device(self.device)
        if self.dtype not in ("float32", "bfloat16"):
            raise TrainingError(f"dtype is {self.dtype!r}; pretraining changes every weight, in float32 or bfloat16")

    def text_identity(self) -> dict[str, Any]:
        """The inputs of the tokenizer and the tokens."""
        texts = [{"name": path.name, "sha256": _digest(path)} for path in self.texts]
        return {"texts": texts, "vocab_size": self.shape.vocab_size}

    def identity(self) -> dict[str, Any]:
        """The other settings that a resumed run must keep."""
        return {
            "shape": asdict(self.shape),
            "optimization": asdict(self.optimization),
            "budget": {"steps": self.budget.steps, "minutes": self.budget.minutes},
        }


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_numbers(numbers: dict[str, Any]) -> None:
    for name, least in _AT_LEAST.items():
        if not least <= numbers[name] < math.inf:
            raise TrainingError(f"{name} is {numbers[name]}; it must be a number of at least {least}")
    if not 0 < numbers["learning_rate"] < math.inf:
        raise TrainingError(f"learning_rate is {numbers['learning_rate']}; it must be a number above 0")
    if numbers["warmup"] >= 1:
        raise TrainingError(f"warmup is {numbers['warmup']}; it must be a fraction below 1")
    if not MIN_VOCAB <= numbers["vocab_size"] <= MAX_VOCAB:
        raise TrainingError(f"vocab_size is {numbers['vocab_size']}; it must be from {MIN_VOCAB} to {MAX_VOCAB}")
    if numbers["input_length"] > MAX_TOKENS:
        raise TrainingError(f"input_length is {numbers['input_length']}; it must be at most {MAX_TOKENS}")
    if numbers["seed"] >= 2**32:
        raise TrainingError(f"seed is {numbers['seed']}; it must be at most {2**32 - 1}")
