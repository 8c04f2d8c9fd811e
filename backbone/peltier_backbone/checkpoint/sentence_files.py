"""The files of a sentence-transformers checkpoint beside its model: its modules, pooling and prompts; imports no
torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from peltier_backbone.errors import BackboneError

SentencePooling = Literal["first", "mean", "max"]
POOLING_FILE, PROMPTS_FILE = "1_Pooling/config.json", "config_sentence_transformers.json"
MODULES_FILE = "modules.json"
_MODES: dict[str, SentencePooling] = {"cls": "first", "mean": "mean", "max": "max"}
_FLAGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}


def read_sentence_pooling(directory: Path) -> SentencePooling | None:
    """The pooling that `1_Pooling/config.json` of the checkpoint in `directory` names. None without that file, and for
    a pooling that no head supports (weighted, or several). Raises a `BackboneError` if it cannot read the file."""
    raw = _read_object(directory / POOLING_FILE)
    return None if raw is None else _MODES.get(_mode(raw))


def read_unserved_module(directory: Path) -> str | None:
    """The first module of the checkpoint in `directory` that is more than its model, a pooling that heads support, and
    normalization: vectors without it are not those of sentence-transformers. None if there is none, and without
    `modules.json` and `1_Pooling/config.json`. Raises a `BackboneError` if it cannot read a file."""
    for place, (kind, folder) in enumerate(_read_modules(directory / MODULES_FILE)):
        known = {"Transformer": place == 0, "Pooling": folder == "1_Pooling", "Normalize": True, "Dropout": True}
        if not known.get(kind.rpartition(".")[2]):
            return f"{folder!r} ({kind})"
    raw = _read_object(directory / POOLING_FILE)
    return "'1_Pooling' (its pooling is neither cls, mean nor max)" if raw and _mode(raw) not in _MODES else None


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


def _read_modules(path: Path) -> list[tuple[str, str]]:
    """The type and the folder of each module; empty without the file."""
    raw = _read_json(path)
    try:
        return [(str(module["type"]), str(module["path"])) for module in raw or []]
    except (TypeError, KeyError):
        raise BackboneError(f"{path} is not a list of modules, each with a type and a path") from None


def _read_json(path: Path) -> Any:
    """The value in a file; None without the file. Raises a `BackboneError` if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, OSError, RecursionError) as error:
        raise BackboneError(f"{path} cannot be read as JSON: {error}") from None


def _read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None without the file. Raises a `BackboneError` if it cannot be read."""
    raw = _read_json(path)
    if raw is None:
        return None
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
