"""The memory of this machine against what the settings allow a server to use."""

from collections.abc import Iterator
from pathlib import Path

from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from peltier_backbone.errors import BackboneError
from peltier_client.commands.doctor import Finding
from rich.filesize import decimal

from peltier_server.settings import Settings

_SUBJECT = "memory"
_MEMORY_INFO = Path("/proc/meminfo")
_LIMIT = Path("/sys/fs/cgroup/memory.max")
# Python, torch and the libraries around them.
_PROGRAM_BYTES = 400 * 1024 * 1024
_ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}


def check_memory(settings: Settings) -> Iterator[Finding]:
    """Whether all that the settings bound fits at once: backbone, adapters, bodies and answers."""
    compute, memory = settings.compute, settings.memory
    try:
        config = load_config(find_checkpoint(compute.backbone, config_only=True))
    except (BackboneError, OSError) as error:
        step = "name a directory with a checkpoint, a hub id or minilm with --backbone"
        text = f"the backbone {compute.backbone!r} cannot be read: {error}"
        yield Finding(subject="backbone", level="broken", text=text, next_step=step)
        return
    backbone = config.num_parameters * _ELEMENT_BYTES[compute.dtype]
    text = f"{compute.backbone}: {config.num_parameters:,} parameters, {decimal(backbone)} in {compute.dtype}"
    yield Finding(subject="backbone", level="ok", text=text)
    on_cpu = compute.device == "cpu"
    parts = {
        "the program": _PROGRAM_BYTES,
        "the backbone": backbone if on_cpu else 0,
        "device_bytes": memory.device_bytes if on_cpu else 0,
        "host_bytes": memory.host_bytes,
        "max_pending_bytes": settings.limits.max_pending_bytes,
        "max_pending_answer_bytes": settings.limits.max_pending_answer_bytes,
    }
    yield from _compare(parts, available_bytes(), "this machine or its container")
    if not on_cpu:
        import torch

        total = torch.cuda.get_device_properties(0).total_memory
        yield from _compare({"the backbone": backbone, "device_bytes": memory.device_bytes}, total, "the GPU")


def _compare(parts: dict[str, int], available: int | None, place: str) -> Iterator[Finding]:
    needed = sum(parts.values())
    shown = ", ".join(f"{name} {decimal(size)}" for name, size in parts.items() if size)
    text = f"the settings allow a server {decimal(needed)}: {shown}"
    if available is None:
        yield Finding(subject=_SUBJECT, level="note", text=f"{text}; the memory of {place} is not known")
        return
    text = f"{text}; {place} has {decimal(available)}"
    if needed <= available:
        yield Finding(subject=_SUBJECT, level="ok", text=text)
        return
    step = "lower device_bytes and host_bytes, or give the server more memory; a full server would be killed"
    yield Finding(subject=_SUBJECT, level="broken", text=text, next_step=step)


def available_bytes(memory_info: Path = _MEMORY_INFO, limit: Path = _LIMIT) -> int | None:
    """The memory that a server can have: all that is not in use, or the limit of the control group (cgroup v2)."""
    found = [size for size in (_free_bytes(memory_info), _limit_bytes(limit)) if size is not None]
    return min(found, default=None)


def _free_bytes(path: Path) -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def _limit_bytes(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no cgroup v2, or "max": no limit
        return None
