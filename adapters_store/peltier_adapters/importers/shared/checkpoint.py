"""The files of a foreign adapter: its tensors, and its JSON configuration.

Every tensor that the configuration promises must be there, and every tensor that is there must be used: an importer
compares the names that its settings promise with those in the file (`check_promise`), takes each tensor once, and
refuses tensors left over. Settings that it does not know must be off.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from peltier_backbone.checkpoint.weights import is_finite
from torch import Tensor

from peltier_adapters.conversion.weights import read_weights
from peltier_adapters.errors import AdapterError, and_more

_MAX_SHOWN_NAMES = 3
_OFF: tuple[Any, ...] = (None, False, 0, "", [], {})


class Checkpoint:
    """Tensors by name, in float32, from the file `where`. An `AdapterError` names a missing or unknown tensor."""

    def __init__(self, tensors: Mapping[str, Tensor], where: Path) -> None:
        self._left = dict(tensors)
        self.where = where

    def __contains__(self, name: object) -> bool:
        return name in self._left

    def __iter__(self) -> Iterator[str]:
        """Names of the tensors that are left. Taking tensors while iterating is allowed."""
        return iter([*self._left])

    def take(self, name: str, *shape: int | None) -> Tensor:
        """The tensor `name`. If `shape` is given, it must have these sizes; None is any size."""
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
        tensor = tensor.detach().float()
        if not is_finite(tensor):
            raise AdapterError(f"{self.where}: tensor {name!r} has values that are NaN or infinite in float32")
        return tensor

    def take_if(self, name: str, *shape: int | None) -> Tensor | None:
        """The same, or None if there is no such tensor."""
        return self.take(name, *shape) if name in self._left else None

    def num_dims(self, name: str) -> int | None:
        """The number of dimensions of the tensor `name`; None if there is no such tensor."""
        return self._left[name].dim() if name in self._left else None

    def num_rows(self, name: str) -> int | None:
        """The first size of the tensor `name`; None if there is no such tensor, or one without dimensions."""
        return self._left[name].shape[0] if self.num_dims(name) else None

    def put_back(self, tensors: Mapping[str, Tensor]) -> None:
        """Adds `tensors` again, for another reader to take."""
        self._left.update(tensors)

    def matches(self, pattern: str) -> list[re.Match[str]]:
        """Names of the tensors left that match the whole `pattern`."""
        return [match for name in self._left if (match := re.fullmatch(pattern, name))]

    def skip(self, pattern: str) -> None:
        """Ignores tensors that have no effect on predictions."""
        for match in self.matches(pattern):
            del self._left[match[0]]

    def renamed(self, rename: Callable[[str], str]) -> "Checkpoint":
        """The tensors left under new names, which must be distinct."""
        tensors: dict[str, Tensor] = {}
        for name, tensor in self._left.items():
            short = rename(name)
            if short in tensors:
                raise AdapterError(f"{self.where}: two tensors have the name {short!r} without their prefixes")
            tensors[short] = tensor
        return Checkpoint(tensors, self.where)

    def check_promise(
        self, what: str, promised: Collection[str], found: Collection[str], setting: str, advice: str = ""
    ) -> None:
        """Refuses names that `setting` promises and the file lacks, and names that the file has without a promise. They
        are names of modules or tensors; `what` says what the file has of them: "LoRA of". `advice` is for a
        file that lacks some."""
        if lacking := set(promised) - set(found):
            raise AdapterError(f"{self.where} has no {what} {_shown(lacking)}, which {setting} promises{advice}")
        if surplus := set(found) - set(promised):
            raise AdapterError(f"{self.where} has {what} {_shown(surplus)}, which {setting} does not promise")

    def finish(self) -> None:
        """Refuses tensors that are left."""
        if self._left:
            raise AdapterError(f"{self.where} has tensors that this importer does not support: {_shown(self._left)}")


def _shown(names: Collection[str]) -> str:
    """The first of `names` in order, and how many more there are."""
    num_hidden = len(names) - _MAX_SHOWN_NAMES
    more = f" {and_more(num_hidden)}" if num_hidden > 0 else ""
    return ", ".join(map(repr, sorted(names)[:_MAX_SHOWN_NAMES])) + more


def find_file(directory: Path, names: Sequence[str]) -> Path:
    """The first of `names` that exists in `directory`, or `directory` itself if it is a file."""
    if directory.is_file():
        return directory
    if not directory.is_dir():
        raise AdapterError(f"{directory} does not exist")
    found = next((directory / name for name in names if (directory / name).is_file()), None)
    if found is None:
        raise AdapterError(f"{directory} has none of the files {', '.join(names)}")
    return found


def read_checkpoint(path: Path) -> Checkpoint:
    """The tensors of a .safetensors file, or of a torch file that contains nothing but tensors."""
    return Checkpoint(read_weights(path), path)


class ConfigFile:
    """The settings of one adapter; reading one marks it as known. `where` names the file in messages."""

    def __init__(self, raw: dict[str, Any], where: Path | str) -> None:
        self._raw, self._known = raw, set[str]()
        self.where = where

    def get(self, key: str, default: Any = None) -> Any:
        """The setting, or `default` if it is absent or null."""
        self._known.add(key)
        value = self._raw.get(key)
        return default if value is None else value

    def count(self, key: str) -> int:
        """A setting that must be a positive integer."""
        value = self.get(key)
        if type(value) is not int or value < 1:
            raise AdapterError(f"{self.where}: {key} is {value!r}; it must be a positive integer")
        return value

    def number(self, key: str, default: float) -> float:
        """A setting that must be a number."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise AdapterError(f"{self.where}: {key} is {value!r}; it must be a number")
        try:
            return float(value)
        except OverflowError:
            raise AdapterError(
                f"{self.where}: {key} is an integer of {len(str(value))} digits; it must be smaller"
            ) from None

    def ignore(self, *keys: str) -> None:
        """Marks settings that have no effect on predictions as known."""
        self._known.update(keys)

    def only(self, key: str, *served: Any) -> None:
        """Refuses a setting whose value is not one of `served`; the first is the default."""
        value = self.get(key, served[0])
        if value not in served:
            shown = " or ".join(map(json.dumps, served))
            raise AdapterError(
                f"{self.where}: {key} is {json.dumps(value)}, which is not supported; it must be {shown}"
            )

    def finish(self) -> None:
        """Refuses unknown settings that are not off."""
        for key, value in self._raw.items():
            if key not in self._known and value not in _OFF:
                shown = key if key.isprintable() else repr(key)
                raise AdapterError(f"{self.where}: {shown} is {json.dumps(value)}, which this importer does not know")


def read_config(path: Path) -> ConfigFile:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise AdapterError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(raw, dict):
        raise AdapterError(f"{path} does not contain a JSON object")
    return ConfigFile(raw, path)
