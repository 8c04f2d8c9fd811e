"""Slots: reuse, growth while batches hold what they gathered, and writers on many threads."""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from peltier_adapters.artifact import Artifact, read_artifact
from peltier_adapters.bank import Bank, Banks
from peltier_adapters.batch import forward
from peltier_adapters.presets import find_preset
from peltier_adapters.row import Row
from peltier_adapters.spec import Parts
from peltier_backbone.load import Backbone
from torch import Tensor

MakeArtifact = Callable[..., bytes]
TENSORS = {"lora.down": (2, 3, 48, 8), "lora.up": (2, 3, 8, 48)}


@pytest.fixture
def parts(bert: Backbone) -> Parts:
    """The body of a LoRA."""
    preset = find_preset("lora")
    return preset.compose(preset.settings({}, bert.config), bert.config, outputs=2)[:1]


@pytest.fixture
def bank(bert: Backbone, parts: Parts) -> Bank:
    """An empty bank of LoRAs."""
    return Bank(0, parts, bert)


def _filled(value: float) -> dict[str, Tensor]:
    return {name: torch.full(shape, float(value)) for name, shape in TENSORS.items()}


def _value(bank: Bank, slot: int) -> float:
    (value,) = {float(v) for tensor in bank.gather([slot]).values() for v in tensor.unique()}
    return value


def test_an_empty_bank_holds_no_memory(bank: Bank):
    """Before its first adapter and after its last."""
    assert bank.nbytes == 0
    slots = [bank.add(_filled(k)) for k in range(3)]
    for slot in slots:
        bank.remove(slot)
    assert bank.nbytes == 0


def test_one_adapter_costs_its_own_bytes(bank: Bank):
    """No slots are kept for others that may never come."""
    bank.add(_filled(1))
    assert bank.nbytes == sum(tensor.nbytes for tensor in _filled(1).values())


def test_growth_stays_within_a_quarter(bank: Bank):
    """Slots made ahead are few, and existing values survive every growth."""
    slots = [bank.add(_filled(k)) for k in range(100)]
    assert [_value(bank, slot) for slot in slots] == list(range(100))
    assert bank.nbytes <= 1.26 * 100 * sum(tensor.nbytes for tensor in _filled(0).values())


def test_a_freed_slot_is_used_again(bank: Bank):
    """Replacing adapters does not grow the bank."""
    slots = [bank.add(_filled(k)) for k in range(3)]
    before = bank.nbytes
    bank.remove(slots[1])
    assert bank.add(_filled(9)) == slots[1]
    assert bank.nbytes == before
    assert [_value(bank, slot) for slot in slots] == [0, 9, 2]


def test_a_slot_is_freed_once(bank: Bank):
    """Freeing twice would hand one slot to two adapters."""
    bank.add(_filled(0))
    slot = bank.add(_filled(1))
    bank.remove(slot)
    with pytest.raises(AssertionError):
        bank.remove(slot)


def test_gathering_keeps_the_order_asked_for(bank: Bank):
    """Slots come back with a leading dimension, in any order."""
    slots = [bank.add(_filled(k)) for k in range(5)]
    gathered = bank.gather([slots[3], slots[0], slots[4]])
    assert gathered["lora.up"].shape == (3, *TENSORS["lora.up"])
    assert gathered["lora.up"][:, 0, 0, 0, 0].tolist() == [3, 0, 4]


@pytest.mark.parametrize("slots", [[0], [0, 1]], ids=["one", "two"])
def test_gathered_tensors_outlive_growth(slots: list[int], bank: Bank):
    """A running batch keeps reading what it gathered while others are added."""
    added = [bank.add(_filled(k)) for k in (1, 2)]
    gathered = bank.gather([added[slot] for slot in slots])
    for k in range(50):
        bank.add(_filled(100 + k))
    assert gathered["lora.down"][:, 0, 0, 0, 0].tolist() == [float(slot + 1) for slot in slots]


def test_writers_on_threads_get_slots_of_their_own(bank: Bank):
    """Adding and removing at once never loses or shares a slot."""
    kept: dict[int, float] = {}

    def work(number: int) -> None:
        for turn in range(40):
            value = number * 1000 + turn
            slot = bank.add(_filled(value))
            if turn % 3:
                bank.remove(slot)
            else:
                kept[slot] = value

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept) == 4 * 14
    assert all(_value(bank, slot) == value for slot, value in kept.items())


def _artifacts(backbone: Backbone, make_artifact: MakeArtifact, count: int, **options: object) -> Iterator[Artifact]:
    for seed in range(count):
        yield read_artifact(make_artifact(backbone, "compacter", seed=seed, **options), backbone)


def test_one_signature_shares_a_bank(bert: Backbone, make_artifact: MakeArtifact):
    """Bodies of equal parts share a bank whatever their label counts are; heads of equal parts share theirs."""
    banks = Banks(bert)
    two = [banks.add(one) for one in _artifacts(bert, make_artifact, 2)]
    three = next(banks.add(one) for one in _artifacts(bert, make_artifact, 1, labels=("a", "b", "c")))
    assert two[0].body is two[1].body is three.body
    assert two[0].head is two[1].head is not three.head
    assert two[0].body_slot != two[1].body_slot


def test_a_removed_resident_leaves_no_trace(bert: Backbone, make_artifact: MakeArtifact):
    """Its slot serves the next adapter's numbers, and nothing is held when all are gone."""
    banks = Banks(bert)
    first, second, third = _artifacts(bert, make_artifact, 3)
    kept, gone = banks.add(first), banks.add(second)
    encoded = bert.tokenizer.encode("a good film")
    before = forward(bert, [Row(encoded, kept)])[0].logits
    banks.remove(gone)
    new = banks.add(third)
    expected = forward(bert, [Row(encoded, Banks(bert).add(third))])[0].logits
    assert torch.equal(forward(bert, [Row(encoded, new)])[0].logits, expected)
    assert torch.equal(forward(bert, [Row(encoded, kept)])[0].logits, before)
    banks.remove(kept)
    banks.remove(new)
    assert banks.nbytes == 0


def test_adding_while_batches_run(bert: Backbone, make_artifact: MakeArtifact):
    """Loads on another thread never change a running batch's answers."""
    banks = Banks(bert)
    artifacts = list(_artifacts(bert, make_artifact, 4))
    residents = [banks.add(one) for one in artifacts[:2]]
    rows = [Row(bert.tokenizer.encode(text), one) for one in residents for text in ("bad", "a good film")]
    expected = torch.stack([output.logits for output in forward(bert, rows)])
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            held = [banks.add(one) for one in artifacts * 3]
            for one in held:
                banks.remove(one)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for _ in range(60):
            found = torch.stack([output.logits for output in forward(bert, rows)])
            assert torch.equal(found, expected)
    finally:
        stop.set()
        thread.join()
