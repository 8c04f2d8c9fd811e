"""The pooling that a sentence-transformers checkpoint was trained with; imports no torch."""

import json
from pathlib import Path
from typing import Any, Literal

from peltier_backbone.errors import BackboneError

SentencePooling = Literal["first", "mean", "max"]
POOLING_FILE = "1_Pooling/config.json"
_MODES: dict[str, SentencePooling] = {"cls": "first", "mean": "mean", "max": "max"}
_FLAGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}


def read_sentence_pooling(directory: Path) -> SentencePooling | None:
    """The pooling that `1_Pooling/config.json` of the checkpoint in `directory` names. None without that file, and for
    a pooling that no head supports (weighted, or several). Raises a `BackboneError` if it cannot read the file."""
    raw = read_object(directory / POOLING_FILE)
    return None if raw is None else _MODES.get(_mode(raw))


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None without the file. Raises a `BackboneError` if it cannot be read."""
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, OSError, RecursionError) as error:
        raise BackboneError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(raw, dict):
        raise BackboneError(f"{path} holds no JSON object")
    return raw


def _mode(raw: dict[str, Any]) -> str:
    """The file's one mode by its name in sentence-transformers; empty if the file has no mode or several. Newer files
    have one key for the mode, older files one flag for each mode."""
    if "pooling_mode" in raw:
        named = raw["pooling_mode"]
        return named if isinstance(named, str) else ""
    chosen = [flag for flag, value in raw.items() if flag.startswith("pooling_mode_") and value is True]
    return _FLAGS.get(chosen[0], "") if len(chosen) == 1 else ""
