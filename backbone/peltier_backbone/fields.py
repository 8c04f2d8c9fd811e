"""Reading one `config.json`: each value of the type it must have, or a sentence that names the file, key and value."""

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
        """A positive integer; `default` stands for an absent or null one."""
        value = self._value(key, default)
        if not isinstance(value, int) or value < 1:
            raise self.error(f"{key} is {value!r}; it must be a positive integer")
        return value

    def token(self, key: str, default: int) -> int:
        """A token id; `default` stands for an absent or null one."""
        value = self._value(key, default)
        if not isinstance(value, int) or value < 0:
            raise self.error(f"{key} is {value!r}; it must be a token id or null")
        return value

    def epsilon(self, key: str, default: float) -> float:
        """What a norm adds to the variance."""
        value = self.raw.get(key, default)
        if not isinstance(value, float) or not 0 < value < 1:
            raise self.error(f"{key} is {value!r}; it must be a number between 0 and 1")
        return value

    def only(self, key: str, served: object) -> None:
        """Refuse any value but `served`; absent and null ones count as it."""
        found = self._value(key, served)
        if found != served:
            raise self.error(f"{key} is {found!r}; only {served!r} is served")

    def _value(self, key: str, default: Any) -> Any:
        value = self.raw.get(key)
        return default if value is None else value
