"""Rows of one text share everything below the first block in which any of them is adapted."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.choice import choose_runner
from peltier_adapters.batch.forward import computed_share, forward
from peltier_adapters.batch.row import Row, Stage, plan_stages
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.backbone import Backbone

MakeArtifact = Callable[..., bytes]
LAYERS = 3


@pytest.fixture(scope="module")
def residents(bert: Backbone, make_artifact: MakeArtifact) -> dict[str, Resident]:
    """Adapters by preset and first block; a Compacter at 0 has a norm of the embeddings."""
    banks = Banks(bert)
    places = [("lora", 0), ("compacter", 0), *(("unipelt-apl", first) for first in (1, 2)), ("lora", 2), ("bitfit", 2)]
    return {
        f"{preset}/{first}": banks.add(
            read_artifact(make_artifact(bert, preset, overrides={"first_block": str(first)}), bert)
        )
        for preset, first in places
    }


def _rows(
    bert: Backbone, residents: Sequence[Resident | None], text: str = "a film", scope: str | None = "a"
) -> list[Row]:
    rows = [Row(bert.tokenizer.encode(text), resident, scope=scope) for resident in residents]
    return sorted(rows, key=lambda row: row.order)


def _shape(stages: Sequence[Stage]) -> list[tuple[int, int, int]]:
    """The depths of each stage and its rows."""
    return [(stage.begin, stage.end, len(stage.rows)) for stage in stages]


@pytest.mark.parametrize(
    ("names", "stages"),
    [
        (["lora/2", "bitfit/2"], [(0, 3, 1), (3, 4, 2)]),
        (["lora/2", "unipelt-apl/1"], [(0, 2, 1), (2, 4, 2)]),
        (["lora/2", "unipelt-apl/1", "unipelt-apl/2"], [(0, 2, 1), (2, 3, 2), (3, 4, 3)]),
        (["lora/2", "lora/0", "lora/2"], [(0, 1, 1), (1, 3, 2), (3, 4, 3)]),
        (["lora/0", "lora/0"], [(0, 1, 1), (1, 4, 2)]),
        (["compacter/0", "lora/2"], []),
        (["compacter/0", "lora/2", "lora/2"], [(0, 3, 2), (3, 4, 3)]),
        ([None, "lora/2"], [(0, 3, 1), (3, 4, 2)]),
        ([None, None, "lora/2"], [(0, 3, 1), (3, 4, 2)]),
        ([None, None], [(0, 4, 1)]),
        (["lora/2"], []),
    ],
    ids=str,
)
def test_rows_are_one_until_an_adapter_acts(
    names: list[str | None], stages: list[tuple[int, int, int]], residents: dict[str, Resident], bert: Backbone
):
    """The embeddings are depth 0 to 1, block b is from depth 1 + b on."""
    rows = _rows(bert, [residents[name] if name else None for name in names])
    assert _shape(plan_stages(rows, LAYERS)) == stages


def test_only_rows_of_one_scope_and_one_text_share(residents: dict[str, Resident], bert: Backbone):
    """Another scope, another text, pads, positions, or none of them: each row is computed by itself."""
    (row,) = _rows(bert, [residents["lora/2"]])
    others = [
        replace(row, scope="b"),
        replace(row, scope=None),
        replace(row, encoded=bert.tokenizer.encode("a plot")),
        replace(row, encoded=row.encoded.padded(9, 0)),
        replace(row, encoded=replace(row.encoded, offset=1)),
        replace(row, encoded=replace(row.encoded, types=(1,) * len(row.encoded))),
    ]
    assert plan_stages([row, *others], LAYERS) == []
    assert plan_stages([replace(row, scope=None)] * 2, LAYERS) == []
    assert plan_stages([row, *others, row], LAYERS) != []


def test_shared_blocks_are_computed_once(
    residents: dict[str, Resident], bert: Backbone, monkeypatch: pytest.MonkeyPatch
):
    """Tokens of each run of blocks, and the share of the work that prices learn from."""
    chosen, runs = type(choose_runner(bert)), list[tuple[int, range]]()
    advance = chosen.advance
    monkeypatch.setattr(
        chosen, "advance", lambda self, x, *given: runs.append((len(x), given[-1])) or advance(self, x, *given)
    )
    rows = _rows(bert, [residents[name] for name in ("lora/2", "bitfit/2", "unipelt-apl/2", "unipelt-apl/1")])
    rows += _rows(bert, [residents["lora/2"]], text="a good film", scope="a")
    rows.sort(key=lambda row: row.order)
    forward(bert, rows)
    # Four tokens, and five of the row that shares nothing.
    assert runs == [(4 + 5, range(1)), (2 * 4 + 5, range(1, 2)), (4 * 4 + 5, range(2, 3))]
    assert computed_share(choose_runner(bert), 3, rows) == pytest.approx((9 + 13 + 21) / (3 * 21))
    assert computed_share(choose_runner(bert), 3, rows, record_gates=True) == 1.0


def test_gates_are_recorded_for_each_row(residents: dict[str, Resident], bert: Backbone):
    """Rows whose gates are asked for share nothing, so each has gates from its first block on."""
    rows = _rows(bert, [residents["unipelt-apl/2"], residents["unipelt-apl/1"]])
    for row, output in zip(rows, forward(bert, rows, record_gates=True), strict=True):
        (alone,) = forward(bert, [row], record_gates=True)
        assert output.gates is not None
        assert output.gates["prefix"] == alone.gates["prefix"] if alone.gates else False


def test_an_adapter_that_fails_leaves_the_others_alone(
    residents: dict[str, Resident], bert: Backbone, make_artifact: MakeArtifact
):
    """Weights that are not finite spoil the rows of their own adapter, not what it shares with others."""
    artifact = read_artifact(make_artifact(bert, "lora", overrides={"first_block": "1"}), bert)
    broken = {name: torch.full_like(tensor, torch.nan) for name, tensor in artifact.tensors.items()}
    rows = [*_rows(bert, [residents["lora/2"]]), *_rows(bert, [Banks(bert).add(replace(artifact, tensors=broken))])]
    fine, spoilt = forward(bert, rows)
    assert torch.allclose(fine.logits, forward(bert, rows[:1])[0].logits, atol=1e-5)
    assert not torch.isfinite(spoilt.logits).any()
