"""Embeddings, from the outputs of heads to numbers."""

import pytest
import torch
from peltier_adapters.answers import embeddings
from peltier_adapters.spec.tasks import TaskSpec
from torch.nn import functional as F


def _task(normalized: bool) -> TaskSpec:
    return TaskSpec(type="embedding", labels=(), inputs="single", max_length=16, normalized=normalized)


def test_normalized_embeddings_have_unit_length():
    """Truncated embeddings have it too. Other embeddings, and raw ones, are the outputs themselves."""
    outputs = torch.randn(3, 8)
    torch.testing.assert_close(embeddings.read(_task(True), outputs), F.normalize(outputs, dim=-1))
    torch.testing.assert_close(embeddings.read(_task(True), outputs, 4), F.normalize(outputs[:, :4], dim=-1))
    assert torch.equal(embeddings.read(_task(False), outputs, 4), outputs[:, :4])
    assert torch.equal(embeddings.read(_task(True), outputs, 4, raw=True), outputs[:, :4])


@pytest.mark.parametrize("scale", [1e-20, 1e-6, 0.999999, 1.0, 12345.0, 1e30])
def test_numbers_keep_nine_digits_of_the_largest(scale: float):
    """This holds for values of any magnitude, and the JSON is short."""
    values = F.normalize(torch.randn(64), dim=-1) * scale
    found = embeddings.to_list(values)
    torch.testing.assert_close(torch.tensor(found), values, rtol=0, atol=1e-8 * float(values.abs().max()))
    assert embeddings.to_list(torch.zeros(2)) == [0.0, 0.0]
