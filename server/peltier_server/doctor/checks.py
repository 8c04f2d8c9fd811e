"""All checks, in the order in which `peltier doctor` shows them."""

from collections.abc import Iterator, Mapping
from typing import Any

from peltier_backbone.machine.cores import wait_passively
from peltier_client.commands.doctor import Finding

from peltier_server.doctor.machine import check_memory, check_processor
from peltier_server.doctor.packages import check_packages
from peltier_server.doctor.store import check_store
from peltier_server.load_settings import load_settings
from peltier_server.settings import SettingsError


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
