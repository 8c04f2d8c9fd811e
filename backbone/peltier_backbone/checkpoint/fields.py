"""Reads `config.json` and checks the type of each value; an error names the file, the key and the value.
Imports no torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peltier_backbone.errors import BackboneError

# The keys of an encoder's sizes by their names in the configuration.
ENCODER_SIZES: Mapping[str, str] = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
}


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


@dataclass(frozen=True)
class Yarn:
    """The stretched angles of a model that was trained on rows of `positions` tokens (Peng et al. 2024, "YaRN",
    sections 3.2 to 3.4): pairs that turn fewer than `slow` times in such a row are slower by `factor`, those that turn
    more than `fast` times stay, and the others are between. Queries and keys are multiplied by `gain`."""

    factor: float
    positions: int
    gain: float
    fast: float
    slow: float


def read_yarn(own: Mapping[str, Any], fields: Fields) -> Yarn:
    """The values of a `rope_parameters` of the type 'yarn', with the defaults of the paper."""
    for key, served in (("truncate", True), ("partial_rotary_factor", 1.0), ("mscale", None), ("mscale_all_dim", None)):
        if own.get(key, served) != served:
            raise fields.error(f"{key} of rope_parameters is {own[key]!r}; only {served!r} is served")
    factor = positive("factor of rope_parameters", own.get("factor"), fields)
    positions = own.get("original_max_position_embeddings")
    if isinstance(positions, bool) or not isinstance(positions, int) or positions < 1:
        raise fields.error(f"original_max_position_embeddings is {positions!r}; it must be a positive integer")
    gain = own.get("attention_factor")
    if gain is None:
        gain = 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
    fast, slow = (
        positive(key, own.get(key) or default, fields) for key, default in (("beta_fast", 32), ("beta_slow", 1))
    )
    return Yarn(factor, positions, positive("attention_factor", gain, fields), fast, slow)


def read_rotary(theta: float, fields: Fields) -> tuple[float, float]:
    """The base of the angles, `theta` if the file names none, and what they are divided by. Newer files have both in
    `rope_parameters`, older ones in `rope_theta` and `rope_scaling`."""
    key = "rope_parameters" if fields.raw.get("rope_parameters") is not None else "rope_scaling"
    own = fields.raw.get(key)
    own = {} if own is None else own
    kind = own.get("rope_type", own.get("type", "default")) if isinstance(own, dict) else None
    if not isinstance(own, dict) or kind not in ("default", "linear") or own.get("partial_rotary_factor", 1.0) != 1:
        raise fields.error(f"{key} is {own!r}; only rope_type 'default' and 'linear' of whole heads are served")
    slowdown = own.get("factor") if kind == "linear" else 1.0
    known = (own.get("rope_theta"), fields.raw.get("rope_theta"), theta)
    found = next(one for one in known if one is not None)
    return positive("rope_theta", found, fields), positive(f"factor of {key}", slowdown, fields)


def positive(key: str, found: object, fields: Fields) -> float:
    """The number `found` at `key`, above 0."""
    if isinstance(found, bool) or not isinstance(found, int | float) or not found > 0:
        raise fields.error(f"{key} is {found!r}; it must be a positive number")
    return float(found)


def check_heads(hidden_size: int, num_heads: int, fields: Fields) -> int:
    """The size of a head, which is even: its elements turn in pairs."""
    if hidden_size % (2 * num_heads):
        raise fields.error(f"hidden_size {hidden_size} does not give each of {num_heads} heads an even size")
    return hidden_size // num_heads
