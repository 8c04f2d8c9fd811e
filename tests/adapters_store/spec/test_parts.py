"""Which parts may be combined in one adapter."""

from itertools import permutations

import pytest
from peltier_adapters.spec.maps import LphmMap
from peltier_adapters.spec.parts import (
    BiasSpec,
    BottleneckSpec,
    CentralGateSpec,
    HeadSpec,
    LoraSpec,
    NormSpec,
    PartSpec,
    PrefixSpec,
    PromptSpec,
    VeraSpec,
    count_by_block,
    count_parameters,
    part_conflicts,
    part_problems,
    position_offset,
)
from peltier_backbone.backbone import Backbone

GATE, PREFIX = CentralGateSpec(), PrefixSpec(length=2)
LORA = LoraSpec(targets=("query",), rank=1, alpha=1.0)
PARTS: dict[str, PartSpec] = {
    "bottleneck": BottleneckSpec(sites=("ffn",), size=4, activation="relu", map=LphmMap(n=2)),
    "lora": LORA,
    "prefix": PREFIX,
    "central_gate": GATE,
    "bias": BiasSpec(sites=("query", "output", "lm_head")),
    "norm": NormSpec(),
}
FED = LORA.model_copy(update={"targets": ("query", "intermediate")})


@pytest.mark.parametrize("parts", [*permutations((GATE, PREFIX, LORA))], ids=str)
def test_a_central_gate_has_two_parts_to_scale(parts: tuple[PartSpec, ...]):
    """It needs LoRA and a prefix, in any order. Parts without a central gate are accepted too."""
    assert part_conflicts(parts) == []
    assert part_conflicts((PREFIX.model_copy(update={"gated": True}), LORA)) == []


def test_vera_and_lora_exclude_each_other():
    """A server holds VeRA as a LoRA, and has one LoRA of an adapter."""
    vera = VeraSpec(targets=("query",), rank=1, seed=0)
    assert part_conflicts((vera, LORA)) == ["vera: it is served as a LoRA, so the adapter cannot have a lora too"]
    assert part_conflicts((vera, PREFIX)) == []


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((GATE,), "needs a lora and a prefix without gates of their own"),
        ((GATE, PREFIX), "needs a lora and a prefix"),
        ((GATE, PREFIX.model_copy(update={"gated": True}), LORA), "without gates of their own"),
        ((GATE, PREFIX, LORA.model_copy(update={"skip": 2})), "skip [0, 2] blocks; they must skip the same number"),
        ((GATE, PREFIX, FED), "between the parts of an attention; lora has the target 'intermediate'"),
    ],
    ids=str,
)
def test_another_central_gate_is_refused(parts: tuple[PartSpec, ...], reason: str):
    """A gate without effect, or a part that is scaled twice, is refused."""
    (found,) = part_conflicts(parts)
    assert found.startswith("central_gate: ")
    assert reason in found


@pytest.mark.parametrize(
    "part", [GATE, PREFIX, LORA, BiasSpec(sites=("pooler", "query")), NormSpec()], ids=lambda part: part.kind
)
def test_a_part_that_skips_nothing_is_written_as_before(part: PartSpec, bert: Backbone):
    """Releases that do not know `skip` read its manifest. A part that skips every block is refused."""
    assert "skip" not in part.model_dump()
    skipping = [part.model_copy(update={"skip": skip}) for skip in (2, 3)]
    assert skipping[0].model_dump()["skip"] == 2
    assert [one.problems(bert.config) for one in skipping] == [
        [], [f"{part.kind}: skip = 3 leaves no block of 3 with an adapter"]
    ]  # fmt: skip


def test_a_central_gate_reads_inputs_of_its_own_width(t5: Backbone, t5_gated: Backbone):
    """The output projection of an attention that is narrower than the hidden states has inputs of another width."""
    parts = (GATE, PREFIX, LORA.model_copy(update={"targets": ("output",)}))
    assert part_problems(parts, t5.config) == []
    (problem,) = part_problems(parts, t5_gated.config)
    assert problem.startswith("central_gate: lora target 'output' needs an attention as wide as the hidden size")


def test_a_prefix_takes_positions_where_there_are_any(bert: Backbone, t5: Backbone):
    """It takes as many as its length, if it shifts them; on a T5, which has no positions, that is refused."""
    shifting = PREFIX.model_copy(update={"shifts_positions": True})
    assert [position_offset(parts) for parts in ((PREFIX, LORA), (LORA, shifting))] == [0, 2]
    assert shifting.problems(bert.config) == []
    assert shifting.problems(t5.config) == [
        "prefix: shifts_positions is for encoders; T5 has no positions to count from"
    ]


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("kind", ["bottleneck", "lora", "prefix", "central_gate", "bias", "norm"])
def test_the_blocks_of_a_part_sum_to_it(kind: str, skip: int, t5: Backbone):
    """On T5 both stacks are counted together; skipped blocks have nothing, and shared tensors belong to no block."""
    part = PARTS[kind].model_copy(update={"skip": skip})
    blocks = count_by_block(part, t5.config)
    assert len(blocks) == t5.config.num_layers
    assert set(blocks[:skip]) <= {0}
    assert all(blocks[skip:])
    shared = count_parameters((part.model_copy(update={"skip": t5.config.num_layers}),), t5.config)
    assert sum(blocks) == count_parameters((part,), t5.config) - shared > 0


def test_a_head_has_no_blocks(bert: Backbone):
    """A soft prompt has none either."""
    assert count_by_block(HeadSpec(outputs=2), bert.config) == ()
    assert count_by_block(PromptSpec(length=2), bert.config) == ()
