"""Backbones under tuning: where they start, what is trained and what padding does to them."""

from typing import Any

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_training.data.dataset import pad_rows
from peltier_training.errors import TrainingError
from peltier_training.models.fastfood import Fastfood
from peltier_training.models.tuned_model import FullTuning, Subspace, dropout_rates
from transformers import AutoConfig, AutoModel, PreTrainedModel

TEXTS = ("a good film", "bad", "the plot is very very bad and the actor too")


@pytest.fixture
def encoder(bert: Backbone) -> PreTrainedModel:
    """The small BERT as transformers has it."""
    model: PreTrainedModel = AutoModel.from_pretrained(bert.name, dtype=torch.float32).eval()
    return model


@pytest.fixture
def inputs(bert: Backbone) -> dict[str, Any]:
    """`TEXTS`, padded."""
    return pad_rows([bert.tokenizer.encode(text, max_tokens=32) for text in TEXTS], bert.config)


def test_padded_rows_say_what_packed_ones_say(bert: Backbone, encoder: PreTrainedModel, inputs: dict[str, Any]):
    """The baselines read the very tokens that the adapters read."""
    rows = [bert.tokenizer.encode(text, max_tokens=32) for text in TEXTS]
    assert inputs["attention_mask"].sum(1).tolist() == [len(row.ids) for row in rows]
    with torch.no_grad():
        hidden = FullTuning(encoder)(**inputs).last_hidden_state
        packed = bert.bert(bert.pack(rows))
    torch.testing.assert_close(hidden[inputs["attention_mask"].bool()], packed, atol=2e-5, rtol=1e-4)


def test_a_subspace_starts_at_the_backbone(encoder: PreTrainedModel, inputs: dict[str, Any]):
    """theta is zero and each lambda one, and `dimension` numbers are trained."""
    body = Subspace(encoder, dimension=300, seed=0)
    assert sum(p.numel() for p in body.parameters() if p.requires_grad) == 300
    assert (body.theta == 0).all()
    assert (body.scales == 1).all()
    assert torch.equal(body(**inputs).last_hidden_state, encoder(**inputs).last_hidden_state)


def test_a_subspace_moves_along_its_projections(encoder: PreTrainedModel, inputs: dict[str, Any]):
    """Tensor i is theta_i0 + lambda_i fastfood_i(theta); `tuned` is that model, and the backbone's own stays."""
    before = {name: tensor.clone() for name, tensor in encoder.named_parameters()}
    body = Subspace(encoder, dimension=300, seed=0)
    with torch.no_grad():
        body.theta.normal_()
        body.scales.uniform_()
    tuned = body.tuned()
    generator = torch.Generator().manual_seed(0)
    for (name, tensor), scale in zip(tuned.named_parameters(), body.scales, strict=True):
        moved = Fastfood(tensor.numel(), generator)(body.theta).view_as(tensor)
        torch.testing.assert_close(tensor, before[name] + scale * moved)
    torch.testing.assert_close(tuned(**inputs).last_hidden_state, body(**inputs).last_hidden_state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.named_parameters())


def test_gradients_reach_every_direction(encoder: PreTrainedModel, inputs: dict[str, Any]):
    """theta and the lambdas are trained, no weight of the backbone is."""
    body = Subspace(encoder, dimension=300, seed=0)
    with torch.no_grad():
        body.theta.normal_()
    body(**inputs).last_hidden_state.pow(3).sum().backward()
    assert body.theta.grad is not None
    assert (body.theta.grad != 0).all()
    assert body.scales.grad is not None
    assert all(parameter.grad is None for parameter in encoder.parameters())


def test_a_dimension_of_lambdas_alone_is_refused(encoder: PreTrainedModel):
    """There would be no theta."""
    with pytest.raises(TrainingError, match="setting 'dimension' is 5; it must exceed the backbone's"):
        Subspace(encoder, dimension=5, seed=0)


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "modernbert"])
def test_one_rate_is_that_of_every_dropout(family: str, request: pytest.FixtureRequest):
    """Families name their rates differently."""
    backbone: Backbone = request.getfixturevalue(family)
    config = AutoConfig.from_pretrained(backbone.name)
    config.update(dropout_rates(config, 0.4))
    model = AutoModel.from_config(config)
    rates = [module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    assert len(rates) >= 2 * backbone.config.num_layers
    assert set(rates) == {0.4}
