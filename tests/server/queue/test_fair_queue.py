"""The rows that one pass may take."""

from collections.abc import Callable

import pytest
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.row import Row
from peltier_adapters.generation.search import Decoding
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from peltier_server.queue.fair_queue import BatchRoom
from peltier_server.queue.prices import Price
from peltier_server.queue.ticket import Results, Ticket


@pytest.fixture
def residents(t5: Backbone, make_artifact: Callable[..., bytes]) -> list[Resident]:
    banks = Banks(t5)
    return [banks.add(read_artifact(make_artifact(t5, "lora", seed=seed), t5)) for seed in range(2)]


async def test_each_adapter_of_a_step_costs_its_weights_once(residents: list[Resident]) -> None:
    """Two texts of one adapter fit into 12 where two of different adapters do not."""
    first, second = residents

    def make_draft(resident: Resident) -> Ticket:
        row = Row(Encoded((5,), (0,)), resident)
        return Ticket([row], Price([1], [1], step=2, step_weights=5), Results(1), decoding=Decoding(2))

    for another, fits in ((first, True), (second, False)):
        room = BatchRoom(cost=1000, rows=100, steps=12, alone=False)
        assert room.admits(make_draft(first), 1)
        room.adapters.add(first)
        assert room.admits(make_draft(another), 1) == fits
