"""What a loaded backbone makes at its first use."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from unittest.mock import Mock

import pytest
from peltier_backbone import backbone as module
from peltier_backbone.backbone import Backbone
from peltier_backbone.linear.linear import Linear, choose_linear


def test_two_threads_share_one_copy_of_the_vocabulary(bert: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as large as the embeddings. From Python 3.12 on a cached property has no lock of its own."""
    monkeypatch.setattr(vars(Backbone)["_vocabulary"], "lock", nullcontext(), raising=False)
    both = threading.Barrier(2)

    def choose(*given: object) -> object:
        with suppress(threading.BrokenBarrierError):
            both.wait(timeout=0.1)  # passed only if the other thread makes a copy too
        return choose_linear(*given)  # type: ignore[arg-type]

    choices = Mock(side_effect=choose)
    monkeypatch.setattr(module, "choose_linear", choices)
    bert.forget_vocabulary()

    def read(_: int) -> list[Linear]:
        return list(bert.vocabulary)

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(read, range(2))
    bert.forget_vocabulary()
    assert list(map(id, first)) == list(map(id, second))
    assert choices.call_count == 1
