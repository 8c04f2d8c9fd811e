"""Settings whose memory is known to be too much before the first step."""

from typing import Any

import pytest
import torch
from peltier_training.service import memory_check as bounds
from peltier_training.service import request as requests
from peltier_training.service.memory_check import pass_bytes
from peltier_training.service.messages import Checked, Refused

from tests.training.service.conftest import Desk, jsonl, praise, request

PAIRS = [{"text": f"a film {number}", "pair": f"the plot {number}"} for number in range(12)]
TOO_MUCH: dict[str, tuple[list[dict[str, str]], dict[str, Any], str]] = {
    "an adapter of many experts": (
        praise(), {"preset": "adamix", "settings": {"bottleneck": 4096, "experts": 64}},
        "the adapter of preset 'adamix' with these settings needs ",
    ),
    "a wide embedding": (
        PAIRS, {"task_type": "embedding", "settings": {"batch_size": 1024, "projection": 4096}},
        "batch_size is 1024; the loss of so many pairs needs about 0.188 GiB, and at most 0.0625 GiB are used",
    ),
    "many long pairs of token vectors": (
        PAIRS, {"task_type": "multi-vector-embedding", "settings": {"batch_size": 1024}},
        "batch_size is 1024; the loss of so many pairs needs about ",
    ),
    "one long row": (
        [*praise(), {"text": "film " * 200, "label": "negative"}], {"preset": "lora", "settings": {"max_length": 80}},
        "a row reads 80 tokens, which needs about ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_needs_too_much_memory_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str):
    """With the value and the bound, and no step is taken."""
    rows, asked, reason = TOO_MUCH[name]
    monkeypatch.setattr(requests, "pass_bytes", lambda device: 2**18 if name == "one long row" else 2**26)
    refused = desk.do(desk.job(jsonl(rows), request(**asked)))
    assert isinstance(refused, Refused)
    assert refused.reason.startswith(reason)
    assert [type(message) for message in desk.messages] in ([], [Checked])


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
