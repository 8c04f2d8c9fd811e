"""Repositories of the hub in the format of PEFT or AdapterHub, as directories for their importers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peltier_adapters.errors import AdapterError
from peltier_adapters.hub.address import parse_repository
from peltier_adapters.hub.download import Download, HubError, download

CONFIG = "adapter_config.json"
_WEIGHTS = {"peft": "adapter_model.safetensors", "adapterhub": "adapter.safetensors"}


def origin_of(found: Download) -> str:
    """`peft` or `adapterhub`, by the repository's adapter_config.json; raises HubError for any other repository."""
    try:
        config = json.loads((found.directory / CONFIG).read_bytes())
    except (ValueError, RecursionError) as error:
        raise HubError(f"{found.address}: the file {CONFIG!r} is not JSON") from error
    if isinstance(config, dict) and "peft_type" in config:
        return "peft"
    if isinstance(config, dict) and isinstance(config.get("config"), dict):
        return "adapterhub"
    raise HubError(f"{found.address}: the file {CONFIG!r} is neither PEFT's nor AdapterHub's")


@contextmanager
def importable(found: Download, origin: str) -> Iterator[Path]:
    """The directory that the importer of `origin` reads in the block, whose errors name the repository's files."""
    weights = _WEIGHTS.get(origin)
    if weights is None:
        raise AdapterError(f"origin {origin!r} has no repositories on the hub; those of {', '.join(_WEIGHTS)} are read")
    if weights not in found.files:
        raise HubError(
            f"{found.address} has no {weights}; weights are downloaded as safetensors only, never as a pickle (.bin)"
        )
    try:
        yield found.directory
    except AdapterError as error:
        raise AdapterError(str(error).replace(str(found.directory), found.address)) from error


@contextmanager
def fetched(source: str, origin: str) -> Iterator[tuple[Path, str]]:
    """The directory of hf://OWNER/NAME@REVISION, and the address with its commit."""
    found = download(parse_repository(source))
    with importable(found, origin) as directory:
        yield directory, found.address
