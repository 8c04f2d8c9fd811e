"""Files that the authors' training scripts leave: a checkpoint of the whole model, with its configuration beside it."""

from pathlib import Path

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint, find_file, read_checkpoint
from peltier_adapters.importers.shared.config_file import ConfigFile, read_config

_WEIGHTS = ("pytorch_model.bin", "model.safetensors")


def read_model(path: Path) -> Checkpoint:
    """The tensors of the checkpoint at `path`, a file or a directory."""
    return read_checkpoint(find_file(path, _WEIGHTS))


def read_settings(path: Path) -> ConfigFile:
    """`config.json` beside the weights; without one every setting is absent."""
    file = (path.parent if path.is_file() else path) / "config.json"
    return read_config(file) if file.is_file() else ConfigFile({}, path)


def only_task(checkpoint: Checkpoint, pattern: str) -> str | None:
    """The one task that names matching `pattern` have in their first group; None where no name matches."""
    tasks = sorted({match[1] for match in checkpoint.matches(pattern)})
    if len(tasks) > 1:
        raise AdapterError(
            f"{checkpoint.where} holds adapters of {len(tasks)} tasks: {', '.join(tasks)}; an artifact is of one"
        )
    return tasks[0] if tasks else None
