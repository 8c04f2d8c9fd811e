"""Peltier's backbone alone, or with an adapter for each row: 32 of four presets."""

import sys

import torch
from answering import answer
from common.forced import hold_kernels
from common.serving import variant
from engine import Arguments, Array, Batch, run_all, save_states
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.load import load_backbone
from peltier_backbone.machine.heap import keep_freed_memory
from peltier_backbone.text.packing import Encoded

arguments = Arguments.read()
keep_freed_memory()
hold_kernels()
torch.set_num_threads(arguments.num_threads)
backbone = load_backbone(arguments.checkpoint, dtype=arguments.precision)
work = arguments.read_work()


def encoded(batch: Batch) -> list[Encoded]:
    """The rows as the server's tokenizer makes them."""
    return [Encoded(tuple(row), (0,) * len(row)) for row in batch]


@torch.inference_mode()
def bare(batch: Batch) -> Array:
    """Without adapters."""
    return backbone.encode(backbone.pack(encoded(batch))).float().numpy()


class Adapted:
    """The backbone with adapters of four presets by turns. 32 are loaded at the start."""

    def __init__(self) -> None:
        self._banks, self._residents = Banks(backbone), list[Resident]()
        self._files = [file.read_bytes() for file in sorted(arguments.folder.glob("*.safetensors"))]
        for _ in work.tenants:
            self.load()

    def load(self) -> None:
        """One more adapter from its file."""
        number = len(self._residents)
        data = variant(self._files[number % len(self._files)], number)
        self._residents.append(self._banks.add(read_artifact(data, backbone)))

    def run(self, batch: Batch) -> None:
        """Row n with the n-th adapter."""
        forward(backbone, [Row(row, resident) for row, resident in zip(encoded(batch), self._residents, strict=False)])


if "--adapters" in sys.argv:
    adapted = Adapted()
    cases = {name: lambda own=own: run_all(adapted.run, own) for name, own in work.batches.items()}
    answer({**cases, "load": adapted.load, "tenants": lambda: adapted.run(work.tenants)})
else:
    cases = {name: lambda own=own: run_all(bare, own) for name, own in work.batches.items()}
    answer({**cases, "states": lambda: save_states(bare, work, arguments.states)})
