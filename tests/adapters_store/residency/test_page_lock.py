"""Locked memory of the host tier: exact bytes, locked once per adapter, unlocked with the last reference."""

import gc
import logging
import weakref

import pytest
import torch
from peltier_adapters.artifact.weights import Layout, Weights
from peltier_adapters.residency.page_lock import PageLocks

from tests.adapters_store import fake_card
from tests.adapters_store.fake_card import Card


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    """A fake GPU."""
    return fake_card.install(monkeypatch)


def _weights() -> Weights:
    return Weights.copy(Layout({"one": (3, 5)}), {"one": torch.ones(3, 5)})


def test_the_bytes_that_are_counted_are_locked(card: Card):
    """Neither more nor fewer than the adapter's own pages, and once however often it is copied."""
    locks, weights = PageLocks(), _weights()
    assert locks.lock(weights) is locks.lock(weights)
    assert card.locked == {weights.flat.data_ptr(): weights.nbytes}


def test_memory_is_unlocked_and_free_with_the_last_reference(card: Card):
    """The host tier lets go, and the pages are the system's again."""
    locks, weights = PageLocks(), _weights()
    assert locks.lock(weights) is not None
    memory = weakref.ref(weights.flat)
    del weights
    assert card.unlocked.acquire(timeout=10)
    assert card.locked == {}
    while memory() is not None:  # the other thread's last lines
        gc.collect()


def test_memory_stays_until_its_copy_has_ended(card: Card):
    """The copy engine still reads what the host tier has let go of."""
    locks, weights = PageLocks(), _weights()
    pages = locks.lock(weights)
    assert pages is not None
    copied = fake_card.Event(card)
    copied.over.clear()
    pages.copied = copied  # type: ignore[assignment]
    del pages, weights
    assert not card.unlocked.acquire(timeout=0.05)
    assert len(card.locked) == 1
    copied.over.set()
    assert card.unlocked.acquire(timeout=10)


def test_a_system_that_locks_no_more_is_told_of_once(card: Card, caplog: pytest.LogCaptureFixture):
    """Adapters are served all the same, from ordinary memory."""
    card.lock_error = 2
    locks = PageLocks()
    with caplog.at_level(logging.WARNING):
        assert [locks.lock(_weights()) for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1
    assert "error 2" in caplog.text
