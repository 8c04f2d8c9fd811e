"""Forward passes over the same batches: plain transformers, the bare backbone, and mixed adapters."""

import random
from collections.abc import Sequence
from itertools import cycle

import torch
from common.adapters import KINDS, make_artifact, make_kind
from common.padding import pad
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from transformers import BertModel

BATCH = 32
FOUR = ("compacter", "unipelt-apl", "lora", "adamix")
Batches = list[list[Encoded]]


def transformers_pass(model: BertModel, batches: Batches) -> None:
    """Plain transformers over padded batches."""
    for rows in batches:
        ids, mask = pad([row.ids for row in rows])
        with torch.inference_mode():
            model(input_ids=ids, attention_mask=mask)


def batches_of(rows: list[Encoded]) -> Batches:
    return [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]


def bare_pass(backbone: Backbone, batches: Batches) -> None:
    with torch.inference_mode():
        for batch in batches:
            backbone.encode(backbone.pack(batch))


def mixed_pass(backbone: Backbone, batches: list[list[Row]]) -> None:
    for batch in batches:
        forward(backbone, batch)


class Adapters:
    """Adapters with random weights in the banks of `backbone`, made in `exact`, its float32 twin."""

    def __init__(self, backbone: Backbone, exact: Backbone) -> None:
        self._banks, self._exact = Banks(backbone), exact
        self._made: dict[str, list[Resident]] = {}

    def mix(self, batches: Batches, presets: tuple[str, ...]) -> list[list[Row]]:
        """The same batches, each of distinct adapters of `presets`, as many of each, in random order."""
        share = -(-BATCH // len(presets))
        residents = [resident for preset in presets for resident in self.take(preset, share)]
        return _mix(batches, residents)

    def mix_kinds(self, batches: Batches) -> list[list[Row]]:
        """The same batches, each of distinct adapters for all kinds of tasks, of four presets, in random order."""
        kinds = list(zip(cycle(KINDS), cycle(FOUR), range(BATCH), strict=False))
        made = [make_kind(self._exact, preset, kind, number) for kind, preset, number in kinds]
        return _mix(batches, list(map(self._banks.add, made)))

    def take(self, preset: str, count: int) -> list[Resident]:
        """The first `count` adapters of `preset`, made when they are needed."""
        made = self._made.setdefault(preset, [])
        made += [self._banks.add(make_artifact(self._exact, preset, number)) for number in range(len(made), count)]
        return made[:count]


def _mix(batches: Batches, residents: Sequence[Resident]) -> list[list[Row]]:
    draw = random.Random(0)
    return [
        [Row(row, resident) for row, resident in zip(batch, draw.sample(residents, len(batch)), strict=True)]
        for batch in batches
    ]
