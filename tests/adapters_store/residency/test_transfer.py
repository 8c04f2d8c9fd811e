"""Copies of adapters to the device, and which streams wait for which."""

from collections.abc import Callable

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.artifact.weights import Layout, Weights
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.residency.transfer import CopyStream, create_transfer, share_host
from peltier_backbone.load import Backbone

from tests.adapters_store import fake_card
from tests.adapters_store.fake_card import Card

CPU = torch.device("cpu")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    """A fake GPU."""
    return fake_card.install(monkeypatch)


@pytest.fixture
def resident(
    card: Card, bert: Backbone, make_artifact: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> Resident:
    """A LoRA copied by the copy stream."""
    artifact = read_artifact(make_artifact(bert, "lora"), bert)
    monkeypatch.setattr("peltier_adapters.residency.bank.create_transfer", CopyStream)
    return Banks(bert).add(artifact)


def _weights() -> Weights:
    return Weights.copy(Layout({"one": (3, 5)}), {"one": torch.arange(15.0).view(3, 5)})


def test_a_gpu_has_a_stream_for_copies(card: Card):
    """On the CPU nothing is copied at all."""
    assert create_transfer(CPU) is share_host
    assert isinstance(create_transfer(torch.device("cuda")), CopyStream)


def test_a_copy_leaves_the_host_and_its_end_is_marked(card: Card):
    """On its own stream, from locked memory, the same numbers; the thread's stream is as it was."""
    weights = _weights()
    sent = CopyStream(CPU)(weights)
    assert torch.equal(sent.flat, weights.flat)
    assert sent.flat.data_ptr() != weights.flat.data_ptr()
    assert (card.log, card.current) == ([("record", "copy")], "compute")
    assert list(card.locked) == [weights.flat.data_ptr()]


@pytest.mark.parametrize("error", [0, 2])
def test_nobody_waits_for_a_copy_from_locked_memory(error: int, card: Card, monkeypatch: pytest.MonkeyPatch):
    """Memory that could not be locked may go with its last reference, so that copy is waited for."""
    card.lock_error = error
    waits: list[bool] = []
    copy = torch.Tensor.copy_

    def spy(self: torch.Tensor, source: torch.Tensor, *, non_blocking: bool) -> torch.Tensor:
        waits.append(not non_blocking)
        return copy(self, source)

    weights = _weights()
    monkeypatch.setattr(torch.Tensor, "copy_", spy)
    CopyStream(CPU)(weights)
    assert waits == [error != 0]


def test_the_first_batch_that_reads_an_adapter_waits_on_the_card(card: Card, resident: Resident):
    """Its stream does, for that one copy, and keeps the memory; body and head came together; later batches find both
    done."""
    card.log.clear()
    for slot in (resident.body_slot, resident.head_slot) * 2:
        slot.read()
    assert card.log == [("wait", "compute", "copy"), ("keep for", "compute")]


def test_every_stream_waits_for_itself(card: Card, resident: Resident):
    """What one stream has waited for another has not."""
    copying = card.copy_stream(CPU)
    resident.body_slot.read()
    card.log.clear()
    with card.on(copying):
        resident.body_slot.read()
    assert ("wait", "copy", "copy") in card.log
