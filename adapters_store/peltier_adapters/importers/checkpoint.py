"""The tensors of a foreign checkpoint: each is taken once, and what nobody took is refused."""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from peltier_adapters.errors import AdapterError

_SHOWN = 3


class Checkpoint:
    """Tensors by name, in float32, from the files `where`. An `AdapterError` names what is missing or unknown."""

    def __init__(self, tensors: Mapping[str, Tensor], where: Path) -> None:
        self._left = dict(tensors)
        self.where = where

    def __contains__(self, name: object) -> bool:
        return name in self._left

    def __iter__(self) -> Iterator[str]:
        """Names that nobody has taken yet; taking while iterating is allowed."""
        return iter([*self._left])

    def take(self, name: str, *shape: int | None) -> Tensor:
        """The tensor `name`, whose sizes must be `shape` where that is given; None is any size."""
        if name not in self._left:
            raise AdapterError(f"{self.where}: tensor {name!r} is missing")
        tensor = self._left.pop(name)
        if not tensor.is_floating_point():
            raise AdapterError(f"{self.where}: tensor {name!r} has dtype {tensor.dtype}; weights are floating point")
        if not tensor.numel():
            raise AdapterError(f"{self.where}: tensor {name!r} has shape {list(tensor.shape)}; it must not be empty")
        found = tuple(tensor.shape)
        fits = len(found) == len(shape) and all(want in (None, have) for want, have in zip(shape, found, strict=True))
        if shape and not fits:
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise AdapterError(
                f"{self.where}: tensor {name!r} has shape {list(found)}; on this backbone it must be [{wanted}]"
            )
        return tensor.detach().float()

    def take_if(self, name: str, *shape: int | None) -> Tensor | None:
        """The same, or None where there is no such tensor."""
        return self.take(name, *shape) if name in self._left else None

    def num_dims(self, name: str) -> int | None:
        """How many dimensions the tensor `name` has; None where there is no such tensor."""
        return self._left[name].dim() if name in self._left else None

    def put_back(self, tensors: Mapping[str, Tensor]) -> None:
        """Leave `tensors` for someone else to take."""
        self._left.update(tensors)

    def matches(self, pattern: str) -> list[re.Match[str]]:
        """Names left that match `pattern` as a whole."""
        return [match for name in self._left if (match := re.fullmatch(pattern, name))]

    def skip(self, pattern: str) -> None:
        """Set aside what has no effect on the answers."""
        for match in self.matches(pattern):
            del self._left[match[0]]

    def renamed(self, rename: Callable[[str], str]) -> "Checkpoint":
        """The tensors left by other names, which must stay distinct."""
        tensors: dict[str, Tensor] = {}
        for name, tensor in self._left.items():
            short = rename(name)
            if short in tensors:
                raise AdapterError(f"{self.where}: two tensors are called {short!r} without their prefixes")
            tensors[short] = tensor
        return Checkpoint(tensors, self.where)

    def finish(self) -> None:
        """Refuse what nobody took."""
        if self._left:
            names = ", ".join(map(repr, sorted(self._left)[:_SHOWN]))
            more = f" and {len(self._left) - _SHOWN} more" if len(self._left) > _SHOWN else ""
            raise AdapterError(
                f"{self.where} holds tensors that this import cannot serve: {names}{more}; nothing may be left over"
            )


def find_file(directory: Path, names: Sequence[str]) -> Path:
    """The first of `names` that is in `directory`, or `directory` itself where it is a file."""
    if directory.is_file():
        return directory
    if not directory.is_dir():
        raise AdapterError(f"{directory} does not exist")
    found = next((directory / name for name in names if (directory / name).is_file()), None)
    if found is None:
        raise AdapterError(f"{directory} has none of the files {', '.join(names)}")
    return found


def read_checkpoint(path: Path) -> Checkpoint:
    """The tensors of a .safetensors file or of a torch file, which may hold tensors and nothing else."""
    if path.suffix == ".safetensors":
        try:
            return Checkpoint(load_file(path), path)
        except Exception as error:  # whatever the library says of a broken file, it is the file
            raise AdapterError(f"{path} is not a readable safetensors file: {_reason(error)}") from None
    return Checkpoint(_read_torch(path), path)


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings(action="ignore"):  # of pickles that it is about to refuse
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a broken pickle may raise anything: IndexError, struct.error, …
        raise AdapterError(f"{path} is not a torch file of tensors alone: {_reason(error)}") from None
    if isinstance(state, dict) and isinstance(state.get("model_state_dict"), dict):
        state = state["model_state_dict"]
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise AdapterError(f"{path} holds {type(state).__name__}; it must be a dictionary of tensors")
    strange = next((name for name, tensor in state.items() if tensor.layout != torch.strided or tensor.is_meta), None)
    if strange is not None:
        raise AdapterError(f"{path}: tensor {strange!r} is sparse or has no values; weights are dense tensors")
    return {str(name): tensor for name, tensor in state.items()}


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error).strip() else type(error).__name__
