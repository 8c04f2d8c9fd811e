"""The windows in which the server counts rates in memory."""

from types import SimpleNamespace

import pytest


def stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """None ends while the test runs. Each begins at a multiple of its seconds, whenever something is taken first."""
    monkeypatch.setattr("limits.aio.storage.memory.time", SimpleNamespace(time=lambda: 1_700_000_500.5))
