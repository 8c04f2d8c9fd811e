"""Copies of adapters to the device, and which streams wait for which."""

import threading

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.artifact.weights import AdapterWeights, Layout
from peltier_adapters.residency import transfer
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.residency.transfer import CopyStream, create_transfer, share_host
from torch import Tensor

from tests.adapters_store import fake_card
from tests.adapters_store.fake_card import Card

CPU = torch.device("cpu")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    """A fake GPU."""
    return fake_card.install(monkeypatch)


@pytest.fixture
def resident(card, bert, make_artifact, monkeypatch):
    """A LoRA copied by the copy stream."""
    artifact = read_artifact(make_artifact(bert, "lora"), bert)
    monkeypatch.setattr("peltier_adapters.residency.bank.create_transfer", CopyStream)
    return Banks(bert).add(artifact)


def _weights() -> AdapterWeights:
    return AdapterWeights.copy(Layout({"one": (3, 5)}), {"one": torch.arange(15.0).view(3, 5)})


def _cut(flat: Tensor) -> tuple[Tensor, Tensor]:
    return flat, flat[:0]


def test_a_gpu_has_a_stream_for_copies(card: Card):
    """On the CPU nothing is copied at all."""
    assert create_transfer(CPU) is share_host
    assert isinstance(create_transfer(torch.device("cuda")), CopyStream)


def test_a_copy_leaves_the_host_and_its_end_is_marked(card: Card):
    """On its own stream, the same numbers; the buffer is free before the adapter is ready."""
    weights = _weights()
    (own, _), _ = CopyStream(CPU)(weights, _cut)
    assert torch.equal(own, weights.flat)
    assert own.data_ptr() != weights.flat.data_ptr()
    assert (card.log, card.current) == ([("record", "copy")] * 2, "compute")


def test_an_adapter_larger_than_the_buffer_is_copied_in_pieces(card: Card, monkeypatch: pytest.MonkeyPatch):
    """With the same numbers; each piece waits until the one before it has left the buffer."""
    monkeypatch.setattr(transfer, "_STAGING_ELEMENTS", 4)
    weights = _weights()
    (own, _), _ = CopyStream(CPU)(weights, _cut)
    assert torch.equal(own, weights.flat)
    assert len(card.events) == 5


def test_a_copy_waits_for_the_buffer_and_for_nothing_else(card: Card):
    """The copy engine still reads the adapter before; the caller does not wait for its own copy."""
    copy = CopyStream(CPU)
    copy(_weights(), _cut)
    before, _ = card.events
    before.over.clear()
    loader = threading.Thread(target=copy, args=[_weights(), _cut])
    loader.start()
    assert before.waited.wait(60)
    assert len(card.events) == 2
    before.over.set()
    loader.join(60)
    assert len(card.events) == 4
    assert not card.events[3].waited.is_set()


def test_the_first_batch_that_reads_an_adapter_waits_on_the_card(card: Card, resident: Resident):
    """For one copy of body and head, whose memory it keeps; later batches find both done."""
    card.log.clear()
    for slot in (resident.body_slot, resident.head_slot) * 2:
        slot.read()
    assert card.log == [("wait", "compute", "copy"), *[("keep for", "compute")] * 2]


def test_every_stream_waits_for_itself(card: Card, resident: Resident):
    """What one stream has waited for another has not."""
    copying = card.copy_stream(CPU)
    resident.body_slot.read()
    card.log.clear()
    with card.on(copying):
        resident.body_slot.read()
    assert ("wait", "copy", "copy") in card.log
