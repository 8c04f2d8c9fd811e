"""Compiles every kernel for GPUs without having one, from the calls that would launch it, at BERT-base's shapes.

python -m tests.adapters_store.ops.kernels.compiled
"""

import re
import subprocess
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import triton
from peltier_adapters.ops.kernels import bottleneck, compacter, linear, lora
from peltier_adapters.ops.kernels.runs import create_runs
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

WIDTH, SIZE, N = 768, 48, 4
TARGETS = tuple(product((80, 90, 100), (torch.float32, torch.bfloat16)))


class Card:
    """A driver of a card of `capability`, as far as a compilation asks."""

    def __init__(self, capability: int) -> None:
        self._capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._capability, 32)

    def get_current_device(self) -> int:
        return self._capability

    def get_current_stream(self, device: int) -> int:
        return 0


def call_kernels(dtype: torch.dtype) -> None:
    """Call each once, and with and without what may be left out."""
    runs = create_runs((40, 9), (1, 0), torch.device("cpu"))
    x, y = torch.zeros(49, WIDTH, dtype=dtype), torch.zeros(49, WIDTH, dtype=dtype)
    scale = torch.zeros(49, 1, dtype=dtype)

    def bank(*shape: int) -> torch.Tensor:
        return torch.zeros(2, *shape)

    down, up = (bank(WIDTH, SIZE), bank(SIZE)), (bank(SIZE, WIDTH), bank(WIDTH))
    linear.linear(x, *down, runs)
    bottleneck.bottleneck(y, x, bottleneck.Maps(*down, *up), "gelu", runs, scale)
    lora.lora(y, x, bank(WIDTH, 8), bank(8, WIDTH), runs, scale)
    lora.lora(y, x, bank(WIDTH, 8), bank(8, WIDTH), runs)
    contracting = bank(WIDTH // N, N), bank(N * N, SIZE), bank(SIZE)
    expanding = bank(SIZE, 2 * N * N), bank(2 * N * N), bank(2 * N, WIDTH // N)
    compacter.compacter(y, x, compacter.Maps(*contracting, *expanding), "gelu_new", runs, scale)


def local_bytes(cubin: bytes) -> int:
    """The bytes of local memory that a thread of the kernel uses: registers that are spilled, and arrays."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "kernel.cubin"
        path.write_bytes(cubin)
        command = (triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(path))
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    stack, local = (int(re.findall(rf"{name}:(\d+)", usage)[-1]) for name in ("STACK", "LOCAL"))
    return stack + local


def main() -> None:
    compiled: list[Any] = []
    run = JITFunction.run

    def compile_only(self: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        compiled.append(run(self, *args, grid=grid, warmup=True, **options))

    JITFunction.run = compile_only
    for capability, dtype in TARGETS:
        triton.runtime.driver.set_active(Card(capability))
        call_kernels(dtype)
    assert len(compiled) == 5 * len(TARGETS)
    for kernel in compiled:
        module, target, shared = kernel.src.fn.fn.__module__, kernel.metadata.target, kernel.metadata.shared
        local = local_bytes(kernel.asm["cubin"])
        print(module, target, f"{shared} bytes of shared memory, {local} of local memory")
        assert shared <= 99 * 1024, "the smaller cards of these generations have no more"
        assert local == 0, "spilled registers are read and written in the card's memory"


if __name__ == "__main__":
    main()
