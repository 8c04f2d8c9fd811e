"""The files of a sentence-transformers checkpoint beside its model: its pooling and its prompts; imports no torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from peltier_backbone.errors import BackboneError

SentencePooling = Literal["first", "mean", "max"]
POOLING_FILE, PROMPTS_FILE = "1_Pooling/config.json", "config_sentence_transformers.json"
_MODES: dict[str, SentencePooling] = {"cls": "first", "mean": "mean", "max": "max"}
_FLAGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}


def read_sentence_pooling(directory: Path) -> SentencePooling | None:
    """The pooling that `1_Pooling/config.json` of the checkpoint in `directory` names. None without that file, and for
    a pooling that no head supports (weighted, or several). Raises a `BackboneError` if it cannot read the file."""
    raw = _read_object(directory / POOLING_FILE)
    return None if raw is None else _MODES.get(_mode(raw))


def read_sentence_prompts(directory: Path) -> Mapping[str, str]:
    """The texts that come before inputs, by name: `prompts` in `config_sentence_transformers.json` of the checkpoint in
    `directory`. Empty without that file, and where the pooling leaves the prompt out (`include_prompt`), which no head
    does. Raises a `BackboneError` if it cannot read the file."""
    prompts = (_read_object(directory / PROMPTS_FILE) or {}).get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(one, str) for one in prompts.values()):
        raise BackboneError(f"{directory / PROMPTS_FILE}: prompts is {prompts!r}; it must have a text for each name")
    pooling = _read_object(directory / POOLING_FILE) or {}
    return prompts if pooling.get("include_prompt", True) else {}


def read_default_prompt(directory: Path, prompts: Mapping[str, str]) -> str | None:
    """The name of the prompt for inputs without one: `default_prompt_name` in the same file. None without that, and
    where there are no `prompts`. Raises a `BackboneError` if it is none of them."""
    name = (_read_object(directory / PROMPTS_FILE) or {}).get("default_prompt_name")
    if name is None or not prompts:
        return None
    if not isinstance(name, str) or name not in prompts:
        known = ", ".join(sorted(prompts))
        raise BackboneError(f"{directory / PROMPTS_FILE}: default_prompt_name is {name!r}; it must be one of {known}")
    return name


def _read_object(path: Path) -> dict[str, Any] | None:
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
