"""Files of weights, pickles too, read and written as safetensors by a process that has limits.

Its job is {"files": [[source, target], …]}.
"""

import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.limited_process import Limits, answer, run

_MODULE = "peltier_adapters.conversion.weights"
# A thread reserves memory that it does not use.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
# Tensors of one storage are written once for each name; a T5 has at most four names of its embedding.
_MAX_NAMES = 4
# A small adapter may name one tensor once for each layer.
_FREE_BYTES = 64 * 1024**2
# The file, its tensors with all names, and what safetensors writes of them.
_MEMORY_RATIO = 2 * _MAX_NAMES + 1
_BASE_BYTES, _BASE_SECONDS = 512 * 1024**2, 120
_BYTES_PER_SECOND = 4 * 1024**2
_POINTER = b"version https://git-lfs"
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def write_safetensors(files: Sequence[tuple[Path, Path]]) -> list[dict[str, Any]]:
    """Write the tensors of each source to its target. Returns the facts of each (see `convert_files`), or raises an
    AdapterError."""
    job = {"files": [(str(source.absolute()), str(target.absolute())) for source, target in files]}
    answered: list[dict[str, Any]] = run(_MODULE, job, str(files[0][0]), _ENVIRONMENT)
    return answered


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of a torch file that contains nothing but tensors."""
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    with TemporaryDirectory(prefix="peltier-") as folder:
        target = Path(folder, "weights.safetensors")
        write_safetensors([(path, target)])
        return read_safetensors(target)


def limits_of(job: Mapping[str, Any]) -> Limits:
    """By the sizes of the files, so that a small one cannot become a large one in memory or on the disk."""
    sizes = [Path(source).stat().st_size for source, _ in job["files"]]
    seconds = _BASE_SECONDS + sum(sizes) // _BYTES_PER_SECOND
    return Limits(
        memory_bytes=_BASE_BYTES + _MEMORY_RATIO * max(sizes),
        cpu_seconds=seconds,
        file_bytes=_BASE_BYTES + _MAX_NAMES * max(sizes),
        seconds=4 * seconds,
    )


def convert_files(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The facts of each file: its names, its bytes, and the number of weights of each dtype."""
    try:
        return [_convert(Path(source), Path(target)) for source, target in job["files"]]
    except OSError as error:
        raise AdapterError(f"{error.filename} cannot be read: {error.strerror}") from None


def _convert(source: Path, target: Path) -> dict[str, Any]:
    """Write the tensors of `source`, in their dtypes, to `target`."""
    _check_file(source)
    tensors = read_safetensors(source) if source.suffix == ".safetensors" else _read_torch(source)
    _check_bytes(source, tensors)
    for name, tensor in tensors.items():
        _check_values(source, name, tensor)
    try:
        # safetensors replaces the file with one that only its owner may read.
        target.touch()
        mode = target.stat().st_mode
        save_file(_separate(tensors), target, metadata={"format": "pt"})
        target.chmod(mode)
    except (SafetensorError, OSError) as error:
        raise AdapterError(f"{target} cannot be written: {error}") from None
    counts = Counter[str]()
    for tensor in filter(torch.is_floating_point, tensors.values()):
        counts[str(tensor.dtype).removeprefix("torch.")] += tensor.numel()
    return {"names": sorted(tensors), "dtypes": counts, "bytes": sum(one.nbytes for one in tensors.values())}


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file by name, in their own dtypes."""
    try:
        return load_file(path)
    except Exception as error:  # the library raises various errors for a broken file
        raise AdapterError(f"{path} is not a readable safetensors file: {_reason(error)}") from None


def _read_torch(path: Path) -> dict[str, Tensor]:
    """The tensors of a torch file, which is a pickle, by name, in their own dtypes. Raises an AdapterError for a file
    that contains anything else."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about pickles, which it then refuses
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a broken pickle may raise anything: IndexError, struct.error, …
        raise AdapterError(f"{path} is not a torch file that contains only tensors: {_refusal(error)}") from None
    if isinstance(state, dict) and isinstance(state.get("model_state_dict"), dict):
        state = state["model_state_dict"]
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise AdapterError(f"{path} holds {type(state).__name__}; it must be a dictionary of tensors")
    sparse = next((name for name, tensor in state.items() if tensor.layout != torch.strided or tensor.is_meta), None)
    if sparse is not None:
        raise AdapterError(f"{path}: tensor {sparse!r} is sparse or has no values; weights are dense tensors")
    return {str(name): tensor for name, tensor in state.items()}


def _refusal(error: Exception) -> str:
    """Why torch did not read a pickle, without its advice on how to run what the file holds."""
    if found := re.search(r"GLOBAL (\S+)", str(error)):
        return f"it asks for {found[1]}, which no tensor needs"
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "it asks for more memory than its bytes may have"
    if isinstance(error, UnpicklingError):
        return "it is a pickle of other things"
    return _reason(error) if isinstance(error, RuntimeError | OSError) else "torch.save did not write it"


def _reason(error: Exception) -> str:
    """The first line of an error's message."""
    return str(error).splitlines()[0] if str(error).strip() else type(error).__name__


def _check_file(source: Path) -> None:
    with source.open("rb") as file:
        start = file.read(len(_POINTER))
    if start == _POINTER:
        raise AdapterError(f"{source} is a pointer of Git LFS, not the file itself; `git lfs pull` fetches it")
    if source.suffix == ".safetensors" or not zipfile.is_zipfile(source):
        return
    try:
        with zipfile.ZipFile(source) as archive:
            records = archive.infolist()
    except (zipfile.BadZipFile, OSError) as error:
        raise AdapterError(f"{source} is not a torch file that contains only tensors: {error}") from None
    packed = next((one.filename for one in records if one.compress_type != zipfile.ZIP_STORED), None)
    if packed is not None:
        raise AdapterError(f"{source}: the record {packed!r} is compressed, which torch.save never does")


def _check_bytes(source: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that repeat few values many times."""
    size, found = source.stat().st_size, sum(tensor.nbytes for tensor in tensors.values())
    if found > max(_MAX_NAMES * size, _FREE_BYTES):
        raise AdapterError(
            f"{source}: its tensors have {found:,} bytes, more than {_MAX_NAMES} times the {size:,} of the file"
        )


def _check_values(source: Path, name: str, tensor: Tensor) -> None:
    if tensor.dtype in _FLOATS:
        if count := tensor.numel() - int(torch.isfinite(tensor).sum()):
            raise AdapterError(f"{source}: tensor {name!r} has {count:,} values that are NaN or infinite")
    elif tensor.is_floating_point() or tensor.is_complex() or name.endswith((".weight", ".bias")):
        dtype = str(tensor.dtype).removeprefix("torch.")
        raise AdapterError(
            f"{source}: tensor {name!r} has dtype {dtype}; weights are float16, bfloat16, float32 or float64"
        )


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, each in memory of its own, as safetensors requires."""
    seen, separate = set[int](), dict[str, Tensor]()
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        one = tensor.detach()
        separate[name] = one.clone(memory_format=torch.contiguous_format) if storage in seen else one.contiguous()
        seen.add(storage)
    return separate


def _main(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    limits_of(job).apply()
    return convert_files(job)


if __name__ == "__main__":
    answer(_main)
