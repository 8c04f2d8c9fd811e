"""Embeddings, from the outputs of heads to numbers."""

from typing import get_args

import numpy as np
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


def test_quantized_values_are_buckets_or_bits():
    """256 buckets from -1 to 1; a bit for each value above 0, eight of them in a number, the rest of it zeros."""
    values = torch.tensor([-1.0, -0.999, -0.5, -0.0, 0.0, 1e-9, 0.5, 0.999, 1.0, -0.2])
    assert embeddings.quantize(values, "uint8") == [0, 0, 63, 127, 127, 127, 191, 254, 254, 101]
    assert embeddings.quantize(values, "int8") == [-128, -128, -65, -1, -1, -1, 63, 126, 126, -27]
    assert embeddings.quantize(values, "ubinary") == [0b111, 0b10000000]
    assert embeddings.quantize(values, "binary") == [0b111 - 128, 0]


@pytest.mark.slow  # the import takes seconds; the quick test above has the numbers of every precision
@pytest.mark.parametrize("precision", get_args(embeddings.Precision))
def test_quantized_values_are_those_of_sentence_transformers(precision: embeddings.Precision):
    """To the last bit, with the range from -1 to 1; the sizes are not all divisible by eight."""
    from sentence_transformers.util.quantization import quantize_embeddings

    for size in (384, 129):
        values = F.normalize(torch.randn(50, size), dim=-1)
        ranges = np.array([[-1.0] * size, [1.0] * size])
        expected = quantize_embeddings(values.numpy(), precision, ranges)
        assert [embeddings.quantize(one, precision) for one in values] == expected.tolist()
