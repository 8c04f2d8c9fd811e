"""The choice of a backend for a device."""

import logging

import pytest
import torch
from peltier_adapters.ops import choice
from peltier_adapters.ops.choice import choose_backend

pytest.importorskip("triton", reason="Triton has no build for this machine")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run here")
def test_a_gpu_where_the_kernels_fail_is_served_by_torch(caplog, monkeypatch):
    """Without a C compiler, a driver or a device. The log has the reason once, and no dtype is tried again."""
    monkeypatch.setattr(choice, "_failed_devices", set())
    with caplog.at_level(logging.WARNING):
        chosen = [choose_backend(torch.device("cuda"), dtype).name for dtype in (torch.bfloat16, torch.float32)]
    choice._choose_elsewhere.cache_clear()
    assert chosen == ["torch", "torch"]
    (message,) = caplog.messages
    assert message.startswith("the Triton kernels are left out: ")
