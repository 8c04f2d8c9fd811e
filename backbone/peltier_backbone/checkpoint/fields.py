"""Reads `config.json` and checks the type of each value; an error names the file, the key and the value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peltier_backbone.errors import BackboneError


@dataclass(frozen=True)
class Fields:
    """A Hugging Face configuration read from `source`."""

    raw: Mapping[str, Any]
    source: str

    def error(self, message: str) -> BackboneError:
        """An error about this file."""
        return BackboneError(f"{self.source}: {message}")

    def size(self, key: str, default: int | None = None) -> int:
        """A positive integer; `default` if it is absent or null."""
        value = self._value(key, default)
        if not isinstance(value, int) or value < 1:
            raise self.error(f"{key} is {value!r}; it must be a positive integer")
        return value

    def token(self, key: str, default: int) -> int:
        """A token id; `default` if it is absent or null."""
        value = self._value(key, default)
        if not isinstance(value, int) or value < 0:
            raise self.error(f"{key} is {value!r}; it must be a token id or null")
        return value

    def epsilon(self, key: str, default: float) -> float:
        """The number between 0 and 1 that a norm adds to the variance; `default` if it is absent or null."""
        value = self._value(key, default)
        if not isinstance(value, float) or not 0 < value < 1:
            raise self.error(f"{key} is {value!r}; it must be a number between 0 and 1")
        return value

    def rate(self, key: str, default: float) -> float:
        """A probability below 1; `default` if it is absent or null."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.error(f"{key} is {value!r}; it must be at least 0 and below 1")
        return float(value)

    def only(self, key: str, served: object) -> None:
        """Raise a `BackboneError` unless the value is `served`, absent or null."""
        found = self._value(key, served)
        if found != served:
            raise self.error(f"{key} is {found!r}; only {served!r} is served")

    def _value(self, key: str, default: Any) -> Any:
        value = self.raw.get(key)
        return default if value is None else value
