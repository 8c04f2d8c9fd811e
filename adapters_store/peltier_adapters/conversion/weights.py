"""Files of weights, pickles too, written as safetensors by a process that has limits."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from peltier_adapters.conversion.reader import read_safetensors
from peltier_adapters.limited_process import run

_READER = "peltier_adapters.conversion.reader"
# A thread reserves memory that it does not use.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def write_safetensors(files: Sequence[tuple[Path, Path]]) -> list[dict[str, Any]]:
    """Write the tensors of each source to its target. Returns the facts of each (see `convert_files`), or raises an
    AdapterError."""
    job = {"files": [(str(source.absolute()), str(target.absolute())) for source, target in files]}
    answered: list[dict[str, Any]] = run(_READER, job, str(files[0][0]), _ENVIRONMENT)
    return answered


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of a torch file that contains nothing but tensors."""
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    with TemporaryDirectory(prefix="peltier-") as folder:
        target = Path(folder, "weights.safetensors")
        write_safetensors([(path, target)])
        return read_safetensors(target)
