"""Peltier's continuous decoding, greedy, alone or with the adapters of 8 tenants."""

import sys

import torch
from common.forced import hold_kernels
from common.serving import variant
from common.texts import ours
from engine import Arguments, Batch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.load import load_backbone
from peltier_backbone.machine.heap import keep_freed_memory
from peltier_backbone.text.packing import Encoded
from text_engine import serve

TENANTS = 8

arguments = Arguments.read()
keep_freed_memory()
hold_kernels()
torch.set_num_threads(arguments.num_threads)
backbone = load_backbone(arguments.checkpoint, dtype=arguments.precision)


def load_adapters() -> list[Resident]:
    """Those of the presets in the folder by turns."""
    banks, files = Banks(backbone), [file.read_bytes() for file in sorted(arguments.folder.glob("*.safetensors"))]
    return [
        banks.add(read_artifact(variant(files[number % len(files)], number), backbone)) for number in range(TENANTS)
    ]


residents = load_adapters() if "--adapters" in sys.argv else [None]


def write(rows: Batch, num_rows: int, limit: int) -> Batch:
    """A new row joins as soon as a text ends."""
    return ours(backbone, [Encoded(tuple(row), (0,) * len(row)) for row in rows], residents, num_rows, limit)


serve(arguments, write)
