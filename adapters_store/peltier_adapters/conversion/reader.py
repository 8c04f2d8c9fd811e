"""The process that reads files of weights, pickles too, and writes them as safetensors.

It reads a list of [source, target] from stdin, and writes one JSON document to stdout.
"""

import json
import sys
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from peltier_adapters.conversion.sealing import seal_process
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import read_state

# Tensors of one storage are written once for each name; a T5 has at most four names of its embedding.
_MAX_NAMES = 4
_POINTER = b"version https://git-lfs"
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def main() -> None:
    """Answer {"sealed", "files"}, or {"error"} for a file that is refused."""
    files = json.load(sys.stdin)
    sealed = seal_process()
    try:
        answer = {"sealed": sealed, "files": [_convert(Path(source), Path(target)) for source, target in files]}
    except AdapterError as error:
        answer = {"error": str(error)}
    except OSError as error:
        answer = {"error": f"{error.filename} cannot be read: {error.strerror}"}
    json.dump(answer, sys.stdout)


def _convert(source: Path, target: Path) -> dict[str, Any]:
    """Write the tensors of `source`, in their dtypes, to `target`. Returns their names, their bytes, and the number of
    weights of each dtype."""
    _check_file(source)
    tensors = read_state(source)
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
    if found > _MAX_NAMES * size:
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


if __name__ == "__main__":
    main()
