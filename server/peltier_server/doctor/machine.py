"""The processor and the memory of this machine: what a server would compute with, and whether its settings fit."""

import os
import platform
import re
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from peltier_backbone.errors import BackboneError
from peltier_backbone.machine.cores import usable_cores
from peltier_backbone.machine.memory import available_bytes
from peltier_client.commands.doctor import Finding
from rich.filesize import decimal

from peltier_server.settings import ComputeSettings, CoreSettings

_CPU_INFO = Path("/proc/cpuinfo")
# The measurement error of a trial of some milliseconds is below this factor.
_NOISE_FACTOR = 1.15
# Python, torch and the libraries around them.
_PROGRAM_BYTES = 400 * 1024 * 1024
_ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}
_NO_KERNELS = "there are no native kernels, so torch computes everything, which is slower on a CPU"
_REINSTALL = "pip install --force-reinstall --no-deps peltier, or make install in the sources"


def check_processor(compute: ComputeSettings) -> Iterator[Finding]:
    """What computes on this machine, with which kernels, and what is slower than it need be."""
    yield from _check_cores(compute)
    yield from _check_computing(compute)
    yield from _check_gpu(compute)


def _check_cores(compute: ComputeSettings) -> Iterator[Finding]:
    import torch

    cores, all_cores = usable_cores(), os.cpu_count() or 1
    info = _CPU_INFO.read_text(encoding="utf-8") if _CPU_INFO.exists() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    model = found[1] if found else platform.processor() or platform.machine()
    units = f"vector units {torch.backends.cpu.get_cpu_capability()}"
    text = f"{model}: {cores} of {all_cores} cores are usable, {units}; torch {version('torch')}"
    yield Finding("processor", "ok", f"{text}, {compute.threads} threads")
    if cores < all_cores:
        text = f"the operating system or a container's limit keeps {all_cores - cores} cores from this process"
        yield Finding("processor", "note", text, "allow the process or its container more CPU if answers are slow")
    if compute.threads > cores:
        text = f"{compute.threads} threads share {cores} cores and wait for each other"
        yield Finding("processor", "slow", text, f"--threads {cores}, or 0 for one a core")


def _check_computing(compute: ComputeSettings) -> Iterator[Finding]:
    from peltier_backbone.native.choice import kernels_in_use

    try:
        with kernels_in_use(compute.kernels):
            yield from _check_kernels(compute.kernels)
            if compute.device == "cpu":
                yield from _check_precision(compute)
    except BackboneError as error:
        yield Finding("kernels", "broken", str(error), "--kernels auto, or a level that this machine can use")


def _check_kernels(setting: str) -> Iterator[Finding]:
    from peltier_backbone.native.choice import load_library, survey_libraries

    if setting == "torch":
        text = "the setting kernels is torch, so no native kernels are used"
        yield Finding("kernels", "note", text, "--kernels auto")
        return
    chosen, libraries = load_library(), survey_libraries()
    # Those before the chosen one are faster, and cannot be used.
    for one in libraries if setting == "auto" else ():
        if chosen is not None and one.name == chosen.name:
            break
        text = f"the kernels {one.name} for this processor are not used: {one.reason}"
        yield Finding("kernels", "note" if chosen else "slow", text, _REINSTALL)
    if chosen is None:
        yield Finding("kernels", "slow", _NO_KERNELS)
        return
    others = ", ".join(one.name for one in libraries if one.library is not None and one.name != chosen.name)
    text = f"the native kernels are of level {chosen.name}"
    yield Finding("kernels", "ok", f"{text}; --kernels can also be {others}" if others else text)


def _check_precision(compute: ComputeSettings) -> Iterator[Finding]:
    import torch
    from peltier_backbone.native.choice import choose_kernels, slowdown

    for dtype in (torch.float32, torch.bfloat16):
        choice, precision = choose_kernels(dtype), str(dtype).removeprefix("torch.")
        by = "torch computes" if choice.library is None else f"the native kernels {choice.library.name} compute"
        yield Finding("precision", "ok", f"in {precision} {by}: {choice.reason}")
    factor = slowdown(torch.bfloat16)
    text = f"a layer in bfloat16 takes {factor:.2f} of the time of float32 here, and the server uses {compute.dtype}"
    if compute.dtype == "bfloat16" and factor > _NOISE_FACTOR:
        yield Finding("precision", "slow", text, "--dtype float32")
    elif compute.dtype == "float32" and factor < 1 / _NOISE_FACTOR:
        step = "--dtype bfloat16 or int8 is faster if its answers are exact enough for you (docs/operations.md)"
        yield Finding("precision", "note", text, step)
    else:
        yield Finding("precision", "ok", text)


def _check_gpu(compute: ComputeSettings) -> Iterator[Finding]:
    import torch

    if not torch.cuda.is_available():
        yield Finding("gpu", "ok", "torch sees no CUDA device; the server computes on the processor")
        return
    names = ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
    yield Finding("gpu", "ok", f"{names}; the server uses {compute.device}")
    if compute.device == "cpu":
        text = "the server is set to compute on the processor although there is a GPU"
        yield Finding("gpu", "slow", text, "--device cuda")
    elif find_spec("triton") is None:
        text = "without triton each adapter of a batch is computed by itself"
        yield Finding("gpu", "slow", text, 'pip install "peltier[cuda]"')


def check_memory(settings: CoreSettings) -> Iterator[Finding]:
    """Whether all that the settings bound fits at once: backbone, adapters, bodies and answers."""
    compute, memory, limits = settings.compute, settings.memory, settings.limits
    try:
        config = load_config(find_checkpoint(compute.backbone, config_only=True))
    except (BackboneError, OSError) as error:
        text = f"the backbone {compute.backbone!r} cannot be read: {error}"
        step = "name a directory with a checkpoint, a hub id or minilm with --backbone"
        yield Finding("backbone", "broken", text, step)
        return
    backbone = config.num_parameters * _ELEMENT_BYTES[compute.dtype]
    text = f"{compute.backbone}: {config.num_parameters:,} parameters, {decimal(backbone)} in {compute.dtype}"
    yield Finding("backbone", "ok", text)
    on_device = {"the backbone": backbone, "device_bytes": memory.device_bytes}
    in_memory = {
        "host_bytes": memory.host_bytes,
        "max_pending_bytes": limits.max_pending_bytes,
        "max_pending_answer_bytes": limits.max_pending_answer_bytes,
    }
    on_cpu = compute.device == "cpu"
    parts = {"the program": _PROGRAM_BYTES, **(on_device if on_cpu else {}), **in_memory}
    yield _compare(parts, available_bytes(), "this machine or its container")
    if not on_cpu:
        import torch

        yield _compare(on_device, torch.cuda.get_device_properties(0).total_memory, "the GPU")


def _compare(parts: dict[str, int], available: int | None, place: str) -> Finding:
    needed = sum(parts.values())
    shown = ", ".join(f"{name} {decimal(size)}" for name, size in parts.items() if size)
    text = f"the settings allow a server {decimal(needed)}: {shown}"
    if available is None:
        return Finding("memory", "note", f"{text}; the memory of {place} is not known")
    text = f"{text}; {place} has {decimal(available)}"
    if needed <= available:
        return Finding("memory", "ok", text)
    step = "lower device_bytes and host_bytes, or give the server more memory; a full server would be killed"
    return Finding("memory", "broken", text, step)
