"""All checks of `peltier doctor` in the order in which it shows them, with those of the packages and of the store."""

import asyncio
import os
import platform
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from peltier_backbone.machine.cores import wait_passively
from peltier_client.commands.doctor import Finding
from peltier_store.blobs.blobs import BlobError, Blobs
from peltier_store.location import StoreLocation, require_not_foreign
from peltier_store.registry import Registry, RegistryError
from rich.filesize import decimal

from peltier_server.doctor.machine import check_memory, check_processor
from peltier_server.extensions.settings import load_settings
from peltier_server.settings import SettingsError, StoreSettings

_PACKAGES = "packages"
_DISTRIBUTION = "peltier"
# What one installs to work on Peltier itself.
_FOR_DEVELOPERS = "dev"
_STORE = "store"
_FREE_ARTIFACTS = 4


def check(flags: Mapping[str, Any]) -> Iterator[Finding]:
    """What a server with these flags, the environment and the file of settings would find on this machine."""
    # As in a server: trials of kernels are wrong if threads spin while they wait.
    wait_passively()
    yield from check_packages()
    try:
        settings = load_settings(flags)
    except SettingsError as error:
        step = "correct the flag, the PELTIER_* variable or the file; see peltier serve --help"
        yield Finding(subject="settings", level="broken", text=str(error), next_step=step)
        return
    yield from check_processor(settings.compute)
    yield from check_memory(settings)
    yield from check_store(settings.store, settings.limits.max_artifact_bytes)


def check_packages() -> Iterator[Finding]:
    """One finding for each package that is too old or too new, and the extras that are complete."""
    missing: dict[str, list[str]] = defaultdict(list)
    for extra, requirement in _requirements():
        missing.setdefault(extra, [])
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            missing[extra].append(requirement.name)
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            needed = f"{requirement.name}{requirement.specifier}"
            text = f"{requirement.name} {found} is installed, and this release needs {needed}"
            yield Finding(subject=_PACKAGES, level="broken", text=text, next_step=f'pip install "{needed}"')
    if missing[""]:
        text = f"required packages are missing: {', '.join(missing[''])}"
        yield Finding(subject=_PACKAGES, level="broken", text=text, next_step="pip install peltier")
    complete = sorted(extra for extra, names in missing.items() if extra and not names)
    text = f"peltier {version(_DISTRIBUTION)} on Python {platform.python_version()}, extras: {', '.join(complete)}"
    yield Finding(subject=_PACKAGES, level="ok", text=f"{text} ({sys.prefix})")
    for extra in sorted(extra for extra, names in missing.items() if extra and names):
        text = f"the extra {extra} is not installed: it also needs {', '.join(sorted(missing[extra]))}"
        step = f'to use it: pip install "peltier[{extra}]"'
        yield Finding(subject=_PACKAGES, level="note", text=text, next_step=step)


def _requirements() -> Iterator[tuple[str, Requirement]]:
    """Each requirement on this platform with the extra that brings it, "" for those of every installation."""
    parsed = [Requirement(line) for line in requires(_DISTRIBUTION) or ()]
    extras = {extra for one in parsed for extra in _extras_of(one)}
    for one in parsed:
        if one.name == _DISTRIBUTION:
            continue
        for extra in sorted({"", *extras} - {_FOR_DEVELOPERS}):
            if _is_needed(one, extra):
                yield extra, one
                break


def _extras_of(requirement: Requirement) -> Iterator[str]:
    for word in str(requirement.marker or "").split("extra == ")[1:]:
        yield word.split("'" if word.startswith("'") else '"')[1]


def _is_needed(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def check_store(settings: StoreSettings, max_artifact_bytes: int) -> Iterator[Finding]:
    """Reads the registry and lists the blobs; the bytes of artifacts are not read."""
    location = StoreLocation(settings.blobs, settings.registry)
    try:
        location.existing()
    except BlobError:
        text = f"there is no store at {settings.store} yet"
        yield Finding(subject=_STORE, level="note", text=text, next_step="peltier serve creates it")
        return
    if isinstance(location.blobs, Path):
        yield from _check_directory(location.blobs, max_artifact_bytes)
    try:
        yield from asyncio.run(_compare(location))
    except (BlobError, RegistryError, OSError) as error:
        step = "see docs/operations.md#store-and-registry"
        yield Finding(subject=_STORE, level="broken", text=str(error), next_step=step)


def _check_directory(directory: Path, max_artifact_bytes: int) -> Iterator[Finding]:
    if not directory.is_dir():
        return
    if not os.access(directory, os.W_OK):
        text = f"this user may not write to {directory}, so uploads fail"
        step = "run the server as the owner of the folder, or change its owner"
        yield Finding(subject=_STORE, level="broken", text=text, next_step=step)
    free = shutil.disk_usage(directory).free
    if free < _FREE_ARTIFACTS * max_artifact_bytes:
        text = f"the disk of {directory} has {decimal(free)} left, room for few artifacts of max_artifact_bytes"
        yield Finding(subject=_STORE, level="note", text=text, next_step="free some; peltier store gc deletes orphans")


async def _compare(location: StoreLocation) -> list[Finding]:
    blobs = await asyncio.to_thread(Blobs.open, location.blobs, read_only=True)
    registry = await Registry.open(location.registry, migrate=False)
    try:
        await require_not_foreign(registry, blobs)
        stored = {entry.digest async for entry in blobs.entries()}
        versions = await registry.versions(deleted=True)
        schema = await registry.schema()
    finally:
        await registry.close()
    lost = [version for version in versions if version.digest not in stored]
    if lost:
        first = lost[0]
        text = f"{len(lost)} of {len(versions)} versions have lost their bytes, such as {first.name}@{first.number}"
        step = "peltier store verify names them; restore them from a backup, or upload them again"
        return [Finding(subject=_STORE, level="broken", text=f"{text} of tenant {first.tenant}", next_step=step)]
    text = f"{blobs.name}: {len(versions)} versions, whose bytes are all there; the registry has the schema {schema}"
    return [Finding(subject=_STORE, level="ok", text=f"{text}, the newest of this release")]
