"""Everything that one pretraining run is told."""

import hashlib
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peltier_backbone.load import resolve_device

from peltier_training.errors import TrainingError
from peltier_training.pretraining.corpus import check_files
from peltier_training.pretraining.tokenizer import MAX_VOCAB, MIN_VOCAB

MAX_TOKENS = 512  # of an input, as T5 was trained

_AT_LEAST = {
    "d_model": 1, "layers": 1, "heads": 1, "d_ff": 1, "d_kv": 1, "batch_size": 1, "input_length": 8, "seed": 0,
    "weight_decay": 0.0, "warmup": 0.0,
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """The size of the model: `layers` in the encoder and as many in the decoder."""

    vocab_size: int = 8192
    d_model: int = 256
    layers: int = 4
    heads: int = 4
    d_ff: int = 1024
    d_kv: int = 64
    gated: bool = False


@dataclass(frozen=True)
class Optimization:
    """How it is trained: `learning_rate` is relative to the size of each parameter, inputs have `input_length` tokens,
    `warmup` is a fraction of the budget, `word_vectors` begins the embeddings as those of the text."""

    learning_rate: float = 2e-2
    batch_size: int = 32
    input_length: int = 128
    warmup: float = 0.02
    weight_decay: float = 0.0
    word_vectors: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Budget:
    """How long to train: `steps`, or `minutes` over all calls. `call_minutes` ends this call with a checkpoint."""

    steps: int | None = None
    minutes: float | None = None
    call_minutes: float | None = None

    def check(self) -> None:
        """Raise a `TrainingError` unless there is exactly one budget above 0."""
        if (self.steps is None) == (self.minutes is None):
            raise TrainingError("the budget is either steps or minutes: give one of them")
        for name, value in asdict(self).items():
            if value is not None and not 0 < value < math.inf:
                raise TrainingError(f"{name} is {value}; it must be a number above 0")


@dataclass(frozen=True)
class Pretraining:
    """One run: `output` is the checkpoint to write; `directory` holds the tokenizer, the tokenised text, checkpoints
    and TensorBoard events."""

    texts: tuple[Path, ...]
    output: Path
    directory: Path
    budget: Budget
    shape: Shape = Shape()
    optimization: Optimization = Optimization()
    device: str = "auto"
    dtype: str = "float32"
    resume: bool = False

    def check(self) -> None:
        """Refuse before any text is read."""
        check_files(self.texts)
        self.budget.check()
        _check_numbers(asdict(self.shape) | asdict(self.optimization))
        if self.output.exists() and (not self.output.is_dir() or any(self.output.iterdir())):
            raise TrainingError(f"output {self.output} exists and is not an empty folder")
        if not self.output.parent.is_dir():
            raise TrainingError(f"output {self.output} cannot be written: its parent folder does not exist")
        resolve_device(self.device)
        if self.dtype not in ("float32", "bfloat16"):
            raise TrainingError(f"dtype {self.dtype!r} is unknown; it is one of float32, bfloat16")

    def text_identity(self) -> dict[str, Any]:
        """What the tokenizer and the tokens depend on."""
        texts = [{"name": path.name, "sha256": _digest(path)} for path in self.texts]
        return {"texts": texts, "vocab_size": self.shape.vocab_size}

    def identity(self) -> dict[str, Any]:
        """What else must be the same when the run is resumed."""
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
        raise TrainingError(f"warmup is {numbers['warmup']}; it is a fraction below 1")
    if not MIN_VOCAB <= numbers["vocab_size"] <= MAX_VOCAB:
        raise TrainingError(f"vocab_size is {numbers['vocab_size']}; it must be from {MIN_VOCAB} to {MAX_VOCAB}")
    if numbers["input_length"] > MAX_TOKENS:
        raise TrainingError(f"input_length is {numbers['input_length']}; it must be at most {MAX_TOKENS}")
    if numbers["seed"] >= 2**32:
        raise TrainingError(f"seed is {numbers['seed']}; it must be at most {2**32 - 1}")
