"""Rows of one text share everything below the first block in which any of them is adapted."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.choice import choose_runner
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.packed_batch import TorchBatch
from peltier_adapters.batch.row import Row, RowGates, Stage, plan_stages
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


def _rows(bert, residents, text="a film", scope="a"):
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
def test_rows_are_one_until_an_adapter_acts(names, stages, residents, bert):
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


def test_shared_blocks_are_computed_once(residents, bert, monkeypatch):
    """Tokens of each run of blocks."""
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
    assert choose_runner(bert).shares_blocks


@pytest.mark.parametrize("native", [True, False])
def test_gates_are_recorded_for_each_row(native: bool, bert: Backbone, residents: dict[str, Resident]):
    """Also beside a row of another text, and for two rows of one adapter of which only one shares."""
    names = ("unipelt-apl/2", "unipelt-apl/1", "unipelt-apl/1", "lora/2", "lora/0")
    rows = _rows(bert, [residents[name] for name in names])
    rows[1] = replace(rows[1], scope=None)
    rows.append(replace(rows[1], encoded=bert.tokenizer.encode("a good film"), scope="a"))
    rows.sort(key=lambda row: row.order)
    assert plan_stages(rows, LAYERS)
    runner = choose_runner(bert) if native else TorchBatch(bert)
    expected = [runner.run([row], record_gates=True)[0].gates for row in rows]
    found = [output.gates for output in runner.run(rows, record_gates=True)]
    assert [gates and gates.keys() for gates in found] == [gates and gates.keys() for gates in expected]
    pairs = [pair for gates in zip(found, expected, strict=True) if gates[0] for pair in _values(*gates)]
    assert len(pairs) > 20
    assert all(one == (other if other is None else pytest.approx(other, abs=1e-5)) for one, other in pairs)


def _values(found: RowGates, expected: RowGates) -> list[tuple[float | None, float | None]]:
    return [pair for label, gates in expected.items() for pair in zip(found[label], gates, strict=True)]


def test_an_adapter_that_fails_leaves_the_others_alone(residents, bert, make_artifact):
    """Weights that are not finite spoil the rows of their own adapter, not what it shares with others."""
    artifact = read_artifact(make_artifact(bert, "lora", overrides={"first_block": "1"}), bert)
    broken = {name: torch.full_like(tensor, torch.nan) for name, tensor in artifact.tensors.items()}
    rows = [*_rows(bert, [residents["lora/2"]]), *_rows(bert, [Banks(bert).add(replace(artifact, tensors=broken))])]
    fine, spoilt = forward(bert, rows)
    assert torch.allclose(fine.logits, forward(bert, rows[:1])[0].logits, atol=1e-5)
    assert not torch.isfinite(spoilt.logits).any()
