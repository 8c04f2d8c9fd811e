"""Blocks below an adapter are computed once a row."""

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.bert import Bert
from peltier_backbone.text.packing import Packed
from peltier_training.config.preparation import prepare
from peltier_training.models.lower_blocks import LowerBlocks
from peltier_training.train import learn

from tests.support.cover import cover
from tests.training.conftest import MakeRun
from tests.training.models.test_model import HEADS, encode


@pytest.mark.parametrize(
    ("family", "preset"),
    cover(
        {"family": HEADS.families, "preset": ["compacter", "lora", "prefix", "bitfit", "unipelt-apl", "adapterdrop"]}
    ),
)
def test_the_answers_are_those_from_the_start(family: str, preset: str, request: pytest.FixtureRequest):
    """Without dropout, and so are the gradients: states of the lower blocks have none."""
    backbone: Backbone = request.getfixturevalue(family)
    model = HEADS.create(backbone, preset, **({} if preset == "adapterdrop" else {"first_block": "1"})).eval()
    assert model.lower_blocks is not None
    rows = encode(backbone)
    packed, states = backbone.pack(rows), model.lower_blocks.states(rows)
    found = []
    for given in (None, states):
        model.zero_grad()
        logits = model(packed, given)
        logits.square().sum().backward()
        found.append([logits, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)])
    for whole, upper in zip(*found, strict=True):
        torch.testing.assert_close(upper, whole, rtol=1e-4, atol=1e-4)


def test_adapters_from_the_first_block_on_have_none(bert: Backbone):
    """Also those that change the norm of the embeddings."""
    assert all(HEADS.create(bert, preset).lower_blocks is None for preset in ("compacter", "bitfit"))


def test_rows_are_computed_once(bert: Backbone, monkeypatch: pytest.MonkeyPatch):
    """In any order and company, as often as they fit; the others every time."""
    lengths = list[int]()
    advance = Bert.advance

    def counted(self: Bert, x: torch.Tensor, packed: Packed, *rest: object) -> torch.Tensor:
        lengths.extend(packed.lengths)
        return advance(self, x, packed, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Bert, "advance", counted)
    rows = encode(bert)
    kept = LowerBlocks(bert, 1)
    first = kept.states(rows)
    again = kept.states([*rows[::-1], rows[0]])
    assert lengths == [len(row) for row in rows]
    assert torch.equal(again[-len(rows[0]) :], first[: len(rows[0])])
    lengths.clear()
    none = LowerBlocks(bert, 1, max_bytes=0)
    torch.testing.assert_close(none.states(rows), first)
    none.states(rows)
    assert lengths == 2 * [len(row) for row in rows]


def test_a_training_computes_its_rows_once(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch):
    """Those that train and those that validate, in all epochs."""
    asked, computed = list[int](), list[int]()
    states, compute = LowerBlocks.states, LowerBlocks._compute
    monkeypatch.setattr(LowerBlocks, "states", lambda self, rows: asked.append(len(rows)) or states(self, rows))
    monkeypatch.setattr(LowerBlocks, "_compute", lambda self, rows: computed.append(len(rows)) or compute(self, rows))
    learn(prepare(make_run("classification", "lora", overrides={"first_block": "1"}, epochs=3)))
    assert sum(asked) >= 3 * sum(computed) > 0
