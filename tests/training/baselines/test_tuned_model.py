"""Backbones under tuning: where they start, what is trained and what padding does to them."""

from typing import Any

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_training.baselines.tuned_model import Fastfood, Subspace, dropout_rates, hadamard
from peltier_training.data.dataset import pad_rows
from peltier_training.errors import TrainingError
from scipy.linalg import hadamard as matrix
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedModel

from tests.training.models.test_model import DROPPED_ENCODERS

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
        hidden = encoder(**inputs).last_hidden_state
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
    assert (body.theta.grad != 0).all()
    assert body.scales.grad is not None
    assert all(parameter.grad is None for parameter in encoder.parameters())


def test_a_dimension_of_lambdas_alone_is_refused(encoder: PreTrainedModel):
    with pytest.raises(TrainingError, match="setting 'dimension' is 5; it must exceed the backbone's"):
        Subspace(encoder, dimension=5, seed=0)


@pytest.mark.parametrize("bits", [0, 1, 3, 6, 7, pytest.param(13, marks=pytest.mark.slow)])
def test_the_transform_is_the_hadamard_matrix(bits: int):
    """Of every length, whether one product or several make it."""
    x = torch.randn(1 << bits, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(hadamard(x), torch.from_numpy(matrix(1 << bits)).double() @ x)


def test_the_gradient_is_that_of_the_papers_code():
    """Each transform divides it by the root of the length, which the learning rates of the paper count on
    (docs/methods/baselines.md#intrinsic-said)."""
    x = torch.randn(8, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(8, dtype=torch.float64)
    (hadamard(x) * weights).sum().backward()
    expected = torch.from_numpy(matrix(8)).double() @ weights / 8**0.5
    torch.testing.assert_close(x.grad, expected)


def test_the_projection_is_its_formula():
    """HW(G HW(B x)[P]) / (sqrt(LL sum G^2) sqrt(D / LL)), cut to D (docs/methods/baselines.md#intrinsic-said)."""
    one, x = Fastfood(6, torch.Generator().manual_seed(0)), torch.randn(5)
    full = torch.from_numpy(matrix(8)).float()
    mixed = (full @ (torch.cat((x, torch.zeros(3))) * one.signs))[one.order.long()]
    expected = (full @ (one.gauss * mixed))[:6] / ((8 * one.gauss.square().sum()) ** 0.5 * (6 / 8) ** 0.5)
    torch.testing.assert_close(one(x), expected)
    assert set(one.signs.tolist()) == {-1, 1}
    assert sorted(one.order.tolist()) == list(range(8))


def test_a_small_tensor_sees_the_first_coordinates_alone():
    """What is longer than the tensor's power of two is cut, as in the paper's code."""
    one, x = Fastfood(3, torch.Generator().manual_seed(0)), torch.randn(9)
    assert torch.equal(one(x), one(x[:4]))
    assert Fastfood(1, torch.Generator())(x).shape == (1,)


def test_the_projection_keeps_lengths_on_average():
    x, generator = torch.randn(64), torch.Generator().manual_seed(0)
    lengths = torch.stack([Fastfood(64, generator)(x).norm() for _ in range(200)])
    # One draw's squared length strays by about sqrt(2 / 64) of itself at most, its mean over 200 by a fourteenth.
    assert lengths.square().mean().sqrt() == pytest.approx(float(x.norm()), rel=5 * (2 / 64 / 200) ** 0.5)


# Those of heads of transformers, which a tuned encoder does not have.
HEAD_DROPOUTS = {
    "classifier_dropout", "cls_dropout", "pooler_dropout", "qa_dropout", "seq_classif_dropout", "summary_last_dropout"
}  # fmt: skip


@pytest.mark.parametrize("family", sorted(DROPPED_ENCODERS))
def test_a_rate_is_that_of_every_dropout(family: str, request: pytest.FixtureRequest):
    config = AutoConfig.from_pretrained(request.getfixturevalue(family).name)
    rates = dropout_rates(config, 0.25)
    assert {name for name in config.to_dict() if "dropout" in name} - set(rates) <= HEAD_DROPOUTS
    config.update(rates)
    found = [module.p for module in AutoModel.from_config(config).modules() if isinstance(module, nn.Dropout)]
    assert set(found) <= {0.25}
    assert len(found) >= 2 * config.num_hidden_layers or family not in ("bert", "distilbert", "electra", "modernbert")
