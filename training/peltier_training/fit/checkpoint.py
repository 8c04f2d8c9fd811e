"""The Trainer's checkpoints in a run's directory."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open

from peltier_training.errors import TrainingError
from peltier_training.models.model import TrainableAdapter


def find_checkpoint(directory: Path, model: TrainableAdapter) -> Path:
    """The newest complete checkpoint. Raises a `TrainingError` if there is none or it does not fit `model`."""
    last = newest_checkpoint(directory)
    if _shapes(last / "model.safetensors") != {name: tuple(value.shape) for name, value in model.state_dict().items()}:
        raise TrainingError(
            f"{last} belongs to another adapter; resume with the preset, settings and labels of that run"
        )
    return last


def newest_checkpoint(directory: Path) -> Path:
    """The newest complete checkpoint. Raises a `TrainingError` if there is none."""
    # The Trainer writes the state last, so a checkpoint without it is incomplete.
    whole = [state.parent for state in directory.glob("checkpoint-*/trainer_state.json")]
    if not whole:
        raise TrainingError(f"there is no checkpoint to resume from in {directory}")
    return max(whole, key=lambda path: int(path.name.removeprefix("checkpoint-")))


def remove_checkpoints(directory: Path) -> None:
    """Remove all checkpoints, so that a later resume does not find those of an earlier run."""
    for old in directory.glob("checkpoint-*"):
        shutil.rmtree(old, ignore_errors=True)


def _shapes(path: Path) -> dict[str, Sequence[int]]:
    try:
        with safe_open(path, "pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"checkpoint {path} cannot be read: {error}") from None
