"""The bound of a pass on each device."""

from typing import Any

import pytest
import torch
from peltier_training.service import pass_bytes as bounds
from peltier_training.service.pass_bytes import pass_bytes

GIB = 2**30


@pytest.mark.parametrize(("total", "bound"), [(None, 4), (2 * GIB, 4), (17 * GIB, 4), (127.5 * GIB, 31)])
def test_a_quarter_of_a_machine_but_4_gib_at_least(total: Any, bound: int, monkeypatch: pytest.MonkeyPatch):
    """In whole GiB, so that machines of a kind have the same."""
    monkeypatch.setattr(bounds, "total_bytes", lambda: total and int(total))
    assert pass_bytes("cpu") == bound * GIB


def test_half_of_what_is_free_on_a_gpu(monkeypatch: pytest.MonkeyPatch):
    """With what torch keeps and does not use."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (30 * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 12 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 2 * GIB)
    assert pass_bytes("auto") == pass_bytes("cuda") == 20 * GIB
