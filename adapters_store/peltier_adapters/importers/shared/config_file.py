"""The JSON configuration of a foreign adapter. Settings that an importer does not know must be off."""

import json
from pathlib import Path
from typing import Any

from peltier_adapters.errors import AdapterError

_OFF: tuple[Any, ...] = (None, False, 0, "", [], {})


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
                raise AdapterError(f"{self.where}: {key} is {json.dumps(value)}, which this importer does not know")


def read_config(path: Path) -> ConfigFile:
    """The JSON object in `path`."""
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise AdapterError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(raw, dict):
        raise AdapterError(f"{path} does not contain a JSON object")
    return ConfigFile(raw, path)
