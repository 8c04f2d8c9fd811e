"""The output layer that fits the frozen backbone's vectors."""

from typing import Any

import pytest
import torch
from peltier_adapters.artifact.manifest import read_manifest
from peltier_backbone.backbone import Backbone
from peltier_training.data.dataset import EncodedRows
from peltier_training.errors import TrainingError
from peltier_training.models.fitted_head import fit_head
from peltier_training.models.model import HeadedAdapter
from peltier_training.train import train
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

from tests.training.conftest import MakeRun
from tests.training.models.test_model import create_model, encode


def read_head(model: HeadedAdapter) -> list[torch.Tensor]:
    found = dict(model.named_parameters())
    return [next(tensor for name, tensor in found.items() if name.endswith(end)) for end in ("/weight", "/bias")]


@pytest.mark.parametrize("overrides", [{}, {"first_block": "1"}])
def test_the_head_is_that_of_a_logistic_regression(bert: Backbone, overrides: dict[str, str]):
    """Scikit-learn finds the same logits on the same vectors, whose penalty does not depend on their length."""
    model = create_model(bert, "compacter", **overrides)
    assert isinstance(model, HeadedAdapter)
    rows = encode(bert)
    labels = torch.arange(len(rows)) % model.head_spec.outputs
    with torch.no_grad():
        vectors = model.eval().pool(rows)
    scaled = vectors / vectors.square().sum(1).mean().sqrt()
    reference = LogisticRegression(C=100, tol=1e-8, max_iter=10_000).fit(scaled.numpy(), labels.numpy())
    fit_head(model, "classification", EncodedRows(rows, labels))
    with torch.no_grad():
        logits = model(bert.pack(rows))
    expected = torch.from_numpy(reference.predict_log_proba(scaled.numpy())).float()
    torch.testing.assert_close(logits.log_softmax(-1), expected, atol=2e-2, rtol=2e-2)


def test_independent_labels_are_fitted_too(bert: Backbone):
    """The gradient of the loss with its penalty vanishes at the head of a multilabel task."""
    model = create_model(bert, "compacter")
    assert isinstance(model, HeadedAdapter)
    rows = encode(bert)
    labels = torch.rand(len(rows), model.head_spec.outputs, generator=torch.Generator().manual_seed(0)).round()
    before = F.binary_cross_entropy_with_logits(model.eval()(bert.pack(rows)), labels)
    fit_head(model, "multilabel", EncodedRows(rows, labels))
    assert F.binary_cross_entropy_with_logits(model(bert.pack(rows)), labels) < before / 2


def test_a_run_begins_with_the_fitted_head(make_run: MakeRun):
    """Its artifact says so, and its first validation is better than that of a random head."""
    found = []
    for start in ("random", "fitted"):
        run = make_run(preset="compacter", epochs=1, learning_rate=1e-6, head_start=start)
        found.append(train(run).metrics["accuracy"])
        assert read_manifest(run.output).training.hyperparameters["head_start"] == start
    assert found[1] > found[0]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"task_type": "regression"}, "is for classification and multilabel on an encoder; the task type is regress"),
        ({"overrides": {"head_hidden": "true"}}, "needs a head of one layer; this one has a hidden layer before it"),
        ({"preset": "full"}, "is for adapters; preset .full. tunes the backbone.s weights"),
        ({"head_start": "warm"}, "head_start is 'warm'; it must be random or fitted"),
    ],
)
def test_other_heads_are_refused(make_run: MakeRun, options: dict[str, Any], rule: str):
    """Before a weight is read."""
    with pytest.raises(TrainingError, match=rule):
        train(make_run(**{"preset": "compacter", "head_start": "fitted", **options}))
