"""The comparison of the kernels with torch before the first request."""

import pytest
import torch
from peltier_adapters.gpu import backend as triton
from peltier_adapters.gpu.self_check import check

from tests.adapters_store.gpu.kernels.cases import CPU, TRITON


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float32, marks=pytest.mark.slow)])
def test_the_kernels_pass(dtype: torch.dtype):
    check(TRITON[dtype], CPU, dtype)


@pytest.mark.parametrize(("kernel", "kind"), [("chain", "a bottleneck"), ("step", "a wide bottleneck")])
def test_a_kernel_that_does_nothing_is_named(kernel: str, kind: str, monkeypatch: pytest.MonkeyPatch):

    def leave_out(*arguments: object) -> None:
        if kernel == "chain":
            out, y = arguments[:2]
            assert isinstance(out, torch.Tensor)
            assert isinstance(y, torch.Tensor)
            out.copy_(y)

    monkeypatch.setattr(triton, kernel, leave_out)
    with pytest.raises(RuntimeError, match=f"^triton computes {kind} wrongly in torch.bfloat16$"):
        check(TRITON[torch.bfloat16], CPU, torch.bfloat16)


def test_a_kernel_that_gives_nan_is_named(monkeypatch: pytest.MonkeyPatch):
    """A comparison with NaN does not pass."""
    monkeypatch.setattr(triton, "norm", lambda x, *others: torch.full_like(x, torch.nan))
    with pytest.raises(RuntimeError, match="wrongly"):
        check(TRITON[torch.float32], CPU, torch.float32)
