"""The comparison of the kernels with torch before the first request."""

import pytest
import torch
from peltier_adapters.ops import triton
from peltier_adapters.ops.self_check import check
from peltier_adapters.ops.triton import TritonBackend
from torch import Tensor

from tests.adapters_store.ops.kernels.cases import CPU, DTYPES

TRITON = TritonBackend(CPU)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_kernels_pass(dtype: torch.dtype):
    """All ops, in both dtypes."""
    check(TRITON, CPU, dtype)


@pytest.mark.parametrize(
    ("kernel", "kind"), [("bottleneck", "a bottleneck"), ("lora", "LoRA"), ("compacter", "a Compacter")]
)
def test_a_kernel_that_does_nothing_is_named(kernel: str, kind: str, monkeypatch: pytest.MonkeyPatch):
    """The error says which op is wrong, and in which dtype."""
    monkeypatch.setattr(getattr(triton, kernel), kernel, lambda *arguments: None)
    with pytest.raises(RuntimeError, match=f"^triton computes {kind} wrongly in torch.bfloat16$"):
        check(TRITON, CPU, torch.bfloat16)


def test_a_kernel_that_gives_nan_is_named(monkeypatch: pytest.MonkeyPatch):
    """A comparison with NaN does not pass. Gates and wide bottlenecks are of this kernel."""

    def linear(x: Tensor, weight: Tensor, *others: object) -> Tensor:
        return x.new_full((len(x), weight.shape[-1]), torch.nan)

    monkeypatch.setattr(triton.linear, "linear", linear)
    with pytest.raises(RuntimeError, match="wrongly"):
        check(TRITON, CPU, torch.float32)
