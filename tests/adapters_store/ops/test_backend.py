"""The choice of a backend for a device."""

import logging

import pytest
import torch
from peltier_adapters.ops.backend import choose_backend

pytest.importorskip("triton", reason="Triton has no build for this machine")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run here")
def test_a_gpu_where_the_kernels_fail_is_served_by_torch(caplog: pytest.LogCaptureFixture):
    """Without a C compiler, a driver or a device; the log has the reason."""
    with caplog.at_level(logging.WARNING):
        chosen = choose_backend.__wrapped__(torch.device("cuda"), torch.float32)
    assert chosen.name == "torch"
    (message,) = caplog.messages
    assert message.startswith("the Triton kernels are left out: ")
