"""Compiles every kernel for GPUs without having one, from the calls that would launch it, at BERT-base's shapes.

python -m tests.adapters_store.gpu.kernels.compiled
"""

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import triton
from peltier_adapters.gpu.kernels.activation import gate
from peltier_adapters.gpu.kernels.attention import NUM_ROW_WORDS, Attention
from peltier_adapters.gpu.kernels.chain import Launch, chain
from peltier_adapters.gpu.kernels.norm import norm
from peltier_adapters.gpu.kernels.pool import pool
from peltier_adapters.gpu.kernels.rows import Rows
from peltier_adapters.gpu.kernels.steps import step
from peltier_backbone.linear.norm import LayerNorm, RMSNorm
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

WIDTH, HEADS = 768, 12
# Each capability, and each type on two of them: registers depend on the type, and instructions on the capability.
TARGETS = ((80, torch.bfloat16), (90, torch.float32), (90, torch.bfloat16), (100, torch.float32))


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


def call_kernels(dtype: torch.dtype, num_rows: int, place: int) -> None:
    """Call each, for short and for long rows, and with and without what may be left out."""
    words = torch.zeros(8 * num_rows + num_rows + 1, dtype=torch.int64)  # one buffer, as in a frame
    starts, bases, placed = torch.split(words, [num_rows + 1, num_rows, 7 * num_rows])
    x, qkv = torch.zeros(49, WIDTH, dtype=dtype), torch.zeros(49, 3 * WIDTH, dtype=dtype)
    gates, base = torch.zeros(2, num_rows), LayerNorm(x[0], x[0], 1e-5)
    for longest in (1, 40, 500):
        rows = Rows(starts, bases, bases, longest)
        chain(qkv, qkv, x, None, gates, rows, place, Launch(2, 8, 8))
        chain(x.clone(), x, x, x, gates, rows, place, Launch(1, 1, 1))
        step(x.clone(), x, x, (x, x), gates, rows, place, 1, place % 3, WIDTH)
        query, key, value = qkv.chunk(3, -1)
        layout = placed.view(num_rows, NUM_ROW_WORDS)
        Attention(rows, place, gates).attend(
            query, key, value, WIDTH // HEADS, layout, longest, HEADS, scale=0.125
        )  # fmt: skip
    norm(x, x, rows, place, base)
    norm(x, None, rows, place, RMSNorm(x[0], 1e-6))
    gate(qkv[:, : 2 * WIDTH].contiguous(), "gelu_new")
    pool(x.float(), x, rows, bases)


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
        call_kernels(dtype, num_rows=2, place=7)
        variants = {kernel.hash for kernel in compiled}
        for num_rows, place in ((16, 16), (1, 1), (33, 0)):
            call_kernels(dtype, num_rows, place)
        assert {kernel.hash for kernel in compiled} == variants, "a batch of other numbers compiles no kernel"
    assert len({kernel.src.fn.fn.__module__ for kernel in compiled}) == 6
    for kernel in compiled:
        module, target, shared = kernel.src.fn.fn.__module__, kernel.metadata.target, kernel.metadata.shared
        local = local_bytes(kernel.asm["cubin"])
        print(module, target, f"{shared} bytes of shared memory, {local} of local memory")
        assert shared <= 99 * 1024, "the smaller cards of these generations have no more"
        assert local == 0, "spilled registers are read and written in the card's memory"


if __name__ == "__main__":
    main()
