"""The processor and the memory of this machine: what a server would compute with, and whether its settings fit."""

import os
import platform
import re
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from peltier_backbone.errors import BackboneError
from peltier_backbone.machine.cores import usable_cores
from peltier_backbone.machine.memory import available_bytes
from peltier_client.commands.doctor import Finding, FindingLevel
from rich.filesize import decimal

from peltier_server.settings import ComputeSettings, CoreSettings

_CPU_INFO = Path("/proc/cpuinfo")
# The measurement error of a trial of some milliseconds is below this factor.
_NOISE_FACTOR = 1.15

_SUBJECT = "memory"
# Python, torch and the libraries around them.
_PROGRAM_BYTES = 400 * 1024 * 1024
_ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}


def check_processor(compute: ComputeSettings) -> Iterator[Finding]:
    """What computes on this machine, with which kernels, and what is slower than it need be."""
    yield from _check_cores(compute)
    yield from _check_computing(compute)
    yield from _check_gpu(compute)


def _check_cores(compute: ComputeSettings) -> Iterator[Finding]:
    import torch

    cores, all_cores = usable_cores(), os.cpu_count() or 1
    units = torch.backends.cpu.get_cpu_capability()
    text = f"{_model_name()}: {cores} of {all_cores} cores are usable, vector units {units}"
    yield Finding(subject="processor", level="ok", text=f"{text}; torch {version('torch')}, {compute.threads} threads")
    if cores < all_cores:
        step = "allow the process or its container more CPU if answers are slow"
        text = f"the operating system or a container's limit keeps {all_cores - cores} cores from this process"
        yield Finding(subject="processor", level="note", text=text, next_step=step)
    if compute.threads > cores:
        text = f"{compute.threads} threads share {cores} cores and wait for each other"
        step = f"--threads {cores}, or 0 for one a core"
        yield Finding(subject="processor", level="slow", text=text, next_step=step)


def _model_name() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", _read(_CPU_INFO), re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _check_computing(compute: ComputeSettings) -> Iterator[Finding]:
    from peltier_backbone.errors import BackboneError
    from peltier_backbone.native.choice import kernels_in_use

    with ExitStack() as used:
        try:
            used.enter_context(kernels_in_use(compute.kernels))
        except BackboneError as error:
            step = "--kernels auto, or a level that this machine can use"
            yield Finding(subject="kernels", level="broken", text=str(error), next_step=step)
            return
        yield from _check_kernels(compute)
        yield from _check_precision(compute)


def _check_kernels(compute: ComputeSettings) -> Iterator[Finding]:
    from peltier_backbone.native.choice import load_library, survey_libraries

    if compute.kernels == "torch":
        text = "the setting kernels is torch, so no native kernels are used"
        yield Finding(subject="kernels", level="note", text=text, next_step="--kernels auto")
        return
    chosen = load_library()
    if compute.kernels == "auto":
        yield from _check_libraries(None if chosen is None else chosen.name)
    if chosen is None:
        text = "there are no native kernels, so torch computes everything, which is slower on a CPU"
        yield Finding(subject="kernels", level="slow", text=text)
        return
    others = [one.name for one in survey_libraries() if one.library is not None and one.name != chosen.name]
    text = f"the native kernels are of level {chosen.name}"
    text += f"; --kernels can also be {', '.join(others)}" if others else ""
    yield Finding(subject="kernels", level="ok", text=text)


def _check_libraries(chosen: str | None) -> Iterator[Finding]:
    """Those that are faster than the chosen one, and cannot be used."""
    from peltier_backbone.native.choice import survey_libraries

    for one in survey_libraries():
        if one.name == chosen:
            return
        level: FindingLevel = "note" if chosen else "slow"
        text = f"the kernels {one.name} for this processor are not used: {one.reason}"
        step = "pip install --force-reinstall --no-deps peltier, or make install in the sources"
        yield Finding(subject="kernels", level=level, text=text, next_step=step)


def _check_precision(compute: ComputeSettings) -> Iterator[Finding]:
    if compute.device != "cpu":
        return
    import torch
    from peltier_backbone.native.choice import choose_kernels, slowdown

    for dtype in (torch.float32, torch.bfloat16):
        choice, precision = choose_kernels(dtype), str(dtype).removeprefix("torch.")
        by = "torch" if choice.library is None else f"the native kernels {choice.library.name}"
        text = f"in {precision} {by} compute{'s' if choice.library is None else ''}: {choice.reason}"
        yield Finding(subject="precision", level="ok", text=text)
    factor = slowdown(torch.bfloat16)
    text = f"a layer in bfloat16 takes {factor:.2f} of the time of float32 here, and the server uses {compute.dtype}"
    if compute.dtype == "bfloat16" and factor > _NOISE_FACTOR:
        yield Finding(subject="precision", level="slow", text=text, next_step="--dtype float32")
    elif compute.dtype == "float32" and factor < 1 / _NOISE_FACTOR:
        step = "--dtype bfloat16 or int8 is faster if its answers are exact enough for you (docs/operations.md)"
        yield Finding(subject="precision", level="note", text=text, next_step=step)
    else:
        yield Finding(subject="precision", level="ok", text=text)


def _check_gpu(compute: ComputeSettings) -> Iterator[Finding]:
    import torch

    if not torch.cuda.is_available():
        yield Finding(subject="gpu", level="ok", text="torch sees no CUDA device; the server computes on the processor")
        return
    names = ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
    yield Finding(subject="gpu", level="ok", text=f"{names}; the server uses {compute.device}")
    if compute.device == "cpu":
        text = "the server is set to compute on the processor although there is a GPU"
        yield Finding(subject="gpu", level="slow", text=text, next_step="--device cuda")
    elif find_spec("triton") is None:
        text = "without triton each adapter of a batch is computed by itself"
        yield Finding(subject="gpu", level="slow", text=text, next_step='pip install "peltier[cuda]"')


def check_memory(settings: CoreSettings) -> Iterator[Finding]:
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
