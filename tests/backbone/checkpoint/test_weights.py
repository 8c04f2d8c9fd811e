"""The values of a checkpoint's tensors."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peltier_backbone.checkpoint.weights import is_finite
from peltier_backbone.errors import BackboneError
from peltier_backbone.load import load_backbone
from torch import Tensor

Tensors = dict[str, Tensor]
Edited = Callable[..., Path]


def _put(name: str, value: float, dtype: torch.dtype = torch.float32) -> Callable[[Tensors], Tensors]:
    def change(tensors: Tensors) -> Tensors:
        tensor = tensors[name].to(dtype, copy=True)
        tensor[-1] = value
        return tensors | {name: tensor}

    return change


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_refused(value: float, dtype: str, edited: Edited) -> None:
    """The last row of the vocabulary is one that few texts read."""
    directory = edited(_put("embeddings.word_embeddings.weight", value))
    precision = "bfloat16" if dtype == "bfloat16" else "float32"
    with pytest.raises(BackboneError) as refused:
        load_backbone(str(directory), dtype=dtype)
    assert str(refused.value) == (
        f"{directory}: tensor 'embeddings.word_embeddings.weight' has values that are NaN or infinite in {precision}"
    )


def test_the_values_of_a_t5_are_checked_too(t5_directory: Path, edited: Edited) -> None:
    """Here a weight of the decoder."""
    name = "decoder.block.0.layer.1.EncDecAttention.k.weight"
    with pytest.raises(BackboneError, match=f"tensor '{name}' has values that are NaN or infinite"):
        load_backbone(str(edited(_put(name, math.nan), t5_directory)))


def test_a_value_beyond_the_precision_is_refused(edited: Edited) -> None:
    """3.4e38 is a number in float32, and infinite in bfloat16."""
    name = "encoder.layer.0.output.dense.bias"
    directory = edited(_put(name, 3.4e38))
    load_backbone(str(directory))
    with pytest.raises(BackboneError, match=f"tensor '{name}' has values that are NaN or infinite in bfloat16"):
        load_backbone(str(directory), dtype="bfloat16")


def test_a_value_beyond_float32_is_refused(edited: Edited) -> None:
    """A checkpoint in float64 is computed in float32."""
    name = "encoder.layer.0.output.dense.bias"
    with pytest.raises(BackboneError, match=f"tensor '{name}' has values that are NaN or infinite in float32"):
        load_backbone(str(edited(_put(name, 1e300, torch.float64))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("place", [0, 17, 1022])
def test_one_value_of_a_thousand_is_found(dtype: torch.dtype, place: int) -> None:
    """In every floating-point type; the largest numbers are finite, and so is an empty tensor."""
    largest = torch.full((1023,), torch.finfo(dtype).max, dtype=dtype)
    largest[::2] *= -1
    assert is_finite(largest)
    for value in (math.nan, math.inf, -math.inf):
        wrong = largest.clone()
        wrong[place] = value
        assert not is_finite(wrong)
    assert is_finite(largest[:0])
