"""Repositories of the hub in the format of PEFT or AdapterHub, as directories for their importers."""

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peltier_adapters.errors import AdapterError
from peltier_adapters.hub.address import parse_repository
from peltier_adapters.hub.snapshot import HubError, HubSnapshot

CONFIG = "adapter_config.json"
# What the importers read, except pickles: `.bin` files are never downloaded.
_FILES = (
    r"adapter_config\.json",
    r"adapter_model\.safetensors",
    r"adapter\.safetensors",
    r"head_config\.json",
    r"(model_head|model)\.safetensors",
    r"(config|modules)\.json",
    r"[0-9]_(Pooling|Dense|Normalize)/(config\.json|model\.safetensors)",
)
_WEIGHTS = {"peft": "adapter_model.safetensors", "adapterhub": "adapter.safetensors"}


def origin_of(snapshot: HubSnapshot) -> str:
    """`peft` or `adapterhub`, by the repository's adapter_config.json; raises HubError for any other repository."""
    if CONFIG not in snapshot.files:
        raise HubError(f"{snapshot.where} has neither an artifact, NAME.safetensors of Peltier, nor an {CONFIG}")
    try:
        config = json.loads(snapshot.read(snapshot.choose(re.escape(CONFIG))[0]))
    except (ValueError, RecursionError) as error:
        raise HubError(f"{snapshot.where}: the file {CONFIG!r} is not JSON") from error
    if isinstance(config, dict) and "peft_type" in config:
        return "peft"
    if isinstance(config, dict) and isinstance(config.get("config"), dict):
        return "adapterhub"
    raise HubError(f"{snapshot.where}: the file {CONFIG!r} is neither PEFT's nor AdapterHub's")


@contextmanager
def downloaded(snapshot: HubSnapshot, origin: str) -> Iterator[Path]:
    """A directory with the files of the repository that the importer of `origin` reads, while the block runs."""
    weights = _WEIGHTS.get(origin)
    if weights is None:
        raise AdapterError(f"origin {origin!r} has no repositories on the hub; those of {', '.join(_WEIGHTS)} are read")
    if weights not in snapshot.files:
        raise HubError(
            f"{snapshot.where} has no {weights}; weights are downloaded as safetensors only, never as a pickle (.bin)"
        )
    chosen = snapshot.choose(*_FILES)
    with tempfile.TemporaryDirectory(prefix="peltier-hub-") as name:
        # The importers' default name of the task is the directory's.
        directory = Path(name) / snapshot.repository.rpartition("/")[2]
        for file in chosen:
            # The paths match patterns without "..", so they stay inside of the directory.
            path = directory / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(snapshot.read(file))
        try:
            yield directory
        except AdapterError as error:  # names the files that the user knows
            raise AdapterError(str(error).replace(str(directory), snapshot.where)) from error


@contextmanager
def fetched(source: str, origin: str) -> Iterator[tuple[Path, str]]:
    """The directory of hf://OWNER/NAME@REVISION, and the address with its commit."""
    snapshot = HubSnapshot.open(parse_repository(source))
    with downloaded(snapshot, origin) as directory:
        yield directory, snapshot.where
