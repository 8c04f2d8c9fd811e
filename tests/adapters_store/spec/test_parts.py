"""Which parts may be combined in one adapter."""

from itertools import permutations

import pytest
from peltier_adapters.spec.parts import CentralGateSpec, LoraSpec, PartSpec, PrefixSpec, part_conflicts, position_offset
from peltier_backbone.load import Backbone

GATE, PREFIX = CentralGateSpec(), PrefixSpec(length=2)
LORA = LoraSpec(targets=("query",), rank=1, alpha=1.0)


@pytest.mark.parametrize("parts", [*permutations((GATE, PREFIX, LORA))], ids=str)
def test_a_central_gate_has_two_parts_to_scale(parts: tuple[PartSpec, ...]):
    """In any order nothing is said against it, nor against parts without one."""
    assert part_conflicts(parts) == []
    assert part_conflicts((PREFIX.model_copy(update={"gated": True}), LORA)) == []


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((GATE,), "needs a lora and a prefix without gates of their own"),
        ((GATE, PREFIX), "needs a lora and a prefix"),
        ((GATE, PREFIX.model_copy(update={"gated": True}), LORA), "without gates of their own"),
    ],
    ids=str,
)
def test_another_central_gate_is_refused(parts: tuple[PartSpec, ...], reason: str):
    """A tensor without effect, or a part that is scaled twice, is no adapter's."""
    (found,) = part_conflicts(parts)
    assert found.startswith("central_gate: ")
    assert reason in found


def test_a_prefix_takes_positions_where_there_are_any(bert: Backbone, t5: Backbone):
    """As many as it is long, if it shifts them; on a T5, which has none, that is refused."""
    shifting = PREFIX.model_copy(update={"shifts_positions": True})
    assert [position_offset(parts) for parts in ((PREFIX, LORA), (LORA, shifting))] == [0, 2]
    assert shifting.problems(bert.config) == []
    assert shifting.problems(t5.config) == [
        "prefix: shifts_positions is for encoders; T5 has no positions to count from"
    ]
