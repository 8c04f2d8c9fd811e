"""All checks of `peltier doctor` in the order in which it shows them, with those of the packages and of the store."""

import asyncio
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from peltier_backbone.machine.cores import wait_passively
from peltier_client.commands.doctor import Finding
from peltier_store.blobs.blobs import BlobError, Blobs
from peltier_store.location import StoreLocation, require_not_foreign
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.extensions.registry import Registry

from peltier_server.doctor.machine import check_memory, check_processor
from peltier_server.extensions.settings import load_settings
from peltier_server.settings import SettingsError, StoreSettings

_DISTRIBUTION = "peltier"


def check(flags: Mapping[str, Any]) -> Iterator[Finding]:
    """What a server with these flags, the environment and the file of settings would find on this machine."""
    # As in a server: trials of kernels are wrong if threads spin while they wait.
    wait_passively()
    yield from check_packages()
    try:
        settings = load_settings(flags)
    except SettingsError as error:
        step = "correct the flag, the PELTIER_* variable or the file; see peltier serve --help"
        yield Finding("settings", "broken", str(error), step)
        return
    yield from check_processor(settings.compute)
    yield from check_memory(settings)
    yield from check_store(settings.store)


def check_packages() -> Iterator[Finding]:
    """One finding for each package that is too old or too new, or missing although every installation has it."""
    release = version(_DISTRIBUTION)
    for line in requires(_DISTRIBUTION) or ():
        needed = Requirement(line)
        bound = f"{needed.name}{needed.specifier}"
        try:
            found = version(needed.name)
        except PackageNotFoundError:
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                text = f"the required package {needed.name} is missing"
                yield Finding("packages", "broken", text, "pip install peltier")
            continue
        if not needed.specifier.contains(found, prereleases=True):
            text = f"{needed.name} {found} is installed, and this release needs {bound}"
            yield Finding("packages", "broken", text, f'pip install "{bound}"')
    yield Finding("packages", "ok", f"peltier {release} on Python {platform.python_version()} ({sys.prefix})")


def check_store(settings: StoreSettings) -> Iterator[Finding]:
    """Reads the registry and lists the blobs; the bytes of artifacts are not read."""
    location = StoreLocation(settings.blobs, settings.registry)
    try:
        location.existing()
    except BlobError:
        yield Finding("store", "note", f"there is no store at {settings.store} yet", "peltier serve creates it")
        return
    blobs = location.blobs
    if isinstance(blobs, Path) and blobs.is_dir() and not os.access(blobs, os.W_OK):
        text = f"this user may not write to {blobs}, so uploads fail"
        yield Finding("store", "broken", text, "run the server as the owner of the folder, or change its owner")
    try:
        yield asyncio.run(_compare(location))
    except (BlobError, RegistryError, OSError) as error:
        yield Finding("store", "broken", str(error), "see docs/operations.md#store-and-registry")


async def _compare(location: StoreLocation) -> Finding:
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
        return Finding("store", "broken", f"{text} of tenant {first.tenant}", step)
    text = f"{blobs.name}: {len(versions)} versions, whose bytes are all there; the registry has the schema {schema}"
    return Finding("store", "ok", f"{text}, the newest of this release")
