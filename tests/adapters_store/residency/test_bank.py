"""Slots: exact memory, loads while batches run, and writers on many threads."""

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from peltier_adapters.artifact.artifact import Artifact, read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.ops import choice
from peltier_adapters.ops.op import FusedMatmul, at
from peltier_adapters.ops.torch import TORCH
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.residency.bank import Bank, Banks
from peltier_adapters.spec.parts import Parts
from peltier_backbone.backbone import Backbone
from torch.overrides import TorchFunctionMode

MakeArtifact = Callable[..., bytes]
SHAPES = {"lora.down": (2, 3, 48, 8), "lora.up": (2, 3, 8, 48)}


@pytest.fixture
def parts(bert: Backbone) -> Parts:
    """The body of a LoRA."""
    preset = find_preset("lora")
    return preset.compose(preset.settings({}, bert.config), bert.config, outputs=2)[:1]


@pytest.fixture
def bank(bert: Backbone, parts: Parts) -> Bank:
    """An empty bank of LoRAs."""
    return Bank(0, parts, bert)


def test_a_slot_has_the_tensors_of_the_banks_parts(bank: Bank):
    flat = torch.arange(float(bank.layout.length))
    slot = bank.slot(bank.prepare(flat))
    tensors = bank.layout.views(slot.read())
    assert {name: tensor.shape for name, tensor in tensors.items()} == SHAPES
    assert slot.read() is flat


def test_a_program_is_lowered_once_for_all_adapters(bank: Bank):
    """Its tensors have places and no memory; each adapter's own are found there."""
    (op,) = bank.program.placed["query_key_value", 1][:1]
    assert isinstance(op, FusedMatmul)
    flat = torch.randn(bank.layout.length)
    down = bank.layout.view("lora.down", flat)
    assert op.steps[0].weight.is_meta
    assert torch.equal(at(op.steps[0].weight, flat), down[0, 1])
    stack = torch.stack((flat, 2 * flat))
    assert torch.equal(at(op.steps[0].weight, stack), torch.stack((down[0, 1], 2 * down[0, 1])))


def _artifacts(backbone: Backbone, make_artifact: MakeArtifact, count: int, **options: object) -> Iterator[Artifact]:
    for seed in range(count):
        yield read_artifact(make_artifact(backbone, "compacter", seed=seed, **options), backbone)


def test_one_signature_shares_a_bank(bert: Backbone, make_artifact: MakeArtifact):
    """Bodies of equal parts share a bank for any number of labels; heads of equal parts share a bank too."""
    banks = Banks(bert)
    two = [banks.add(one) for one in _artifacts(bert, make_artifact, 2)]
    three = next(banks.add(one) for one in _artifacts(bert, make_artifact, 1, labels=("a", "b", "c")))
    assert two[0].body is two[1].body is three.body
    assert two[0].head is two[1].head is not three.head
    assert two[0].body_slot.number != two[1].body_slot.number


def test_a_resident_that_is_dropped_leaves_no_trace(bert: Backbone, make_artifact: MakeArtifact):
    """Its memory is free at once, and nothing changes for those that stay or come after it."""
    banks = Banks(bert)
    first, second, third = _artifacts(bert, make_artifact, 3)
    kept, gone = banks.add(first), banks.add(second)
    memory = weakref.ref(gone.body_slot.flat)
    row = Row(bert.tokenizer.encode("a good film"), kept)
    before = forward(bert, [row])[0].logits
    del gone
    assert memory() is None
    expected = forward(bert, [replace(row, resident=Banks(bert).add(third))])[0].logits
    assert torch.equal(forward(bert, [replace(row, resident=banks.add(third))])[0].logits, expected)
    assert torch.equal(forward(bert, [row])[0].logits, before)


def test_a_bank_stays_for_the_next_adapter_of_its_kind(bert: Backbone, make_artifact: MakeArtifact):
    """A load after the last adapter has gone lowers no part again."""
    banks = Banks(bert)
    first, second = _artifacts(bert, make_artifact, 2)
    one = banks.add(first)
    body, head = one.body, one.head
    del one
    other = banks.add(second)
    assert other.body is body
    assert other.head is head


def test_only_the_banks_used_last_stay_without_adapters(bert, make_artifact, monkeypatch):
    """Any number of signatures takes the memory of a few."""
    monkeypatch.setattr("peltier_adapters.residency.bank.MAX_RECENT", 2)
    banks = Banks(bert)
    one, other = (banks.add(artifact) for artifact in _artifacts(bert, make_artifact, 2))
    bodies, heads = weakref.ref(one.body), weakref.ref(one.head)
    del one
    next_one = banks.add(read_artifact(make_artifact(bert, "lora", labels=("a", "b", "c")), bert))
    assert bodies() is other.body
    assert heads() is other.head
    del other, next_one
    assert bodies() is None
    assert heads() is None


def test_an_artifact_is_adopted_without_a_copy(bert: Backbone, make_artifact: MakeArtifact):
    """On the CPU the host's copy and the device's are one."""
    artifact = read_artifact(make_artifact(bert, "lora"), bert)
    resident = Banks(bert).add(artifact)
    held = ((resident.body, resident.body_slot), (resident.head, resident.head_slot))
    found = {name: tensor for bank, slot in held for name, tensor in bank.layout.views(slot.read()).items()}
    assert {name: tensor.data_ptr() for name, tensor in found.items()} == {
        name: tensor.data_ptr() for name, tensor in artifact.tensors.items()
    }
    assert resident.nbytes == artifact.nbytes


def test_a_gpu_keeps_bodies_in_the_precision_of_the_backbone(bert_bfloat16, bert, make_artifact, monkeypatch):
    """Heads in float32, and nothing else. A bias has become the difference to the one that it replaces."""
    triton = pytest.importorskip("peltier_adapters.gpu.backend", reason="Triton has no build for this machine")
    artifact = read_artifact(make_artifact(bert, "bitfit"), bert)
    made = {dtype: triton.TritonBackend(torch.device("cpu"), dtype) for dtype in (torch.float32, torch.bfloat16)}
    monkeypatch.setattr(choice, "choose_backend", lambda device, dtype: made[dtype])
    resident = Banks(bert_bfloat16).add(artifact)
    for slot, bank, size in ((resident.body_slot, resident.body, 2), (resident.head_slot, resident.head, 4)):
        assert slot.read().untyped_storage().nbytes() == size * bank.layout.length
    own = resident.body.layout.view("bias.output", resident.body_slot.read())
    frozen = torch.stack([layer.output.bias for layer in bert_bfloat16.bert.layers])
    assert torch.equal(own, (artifact.tensors["bias.output"] - frozen.float()).bfloat16())


@pytest.mark.parametrize("family", ["bert", "deberta"])
def test_any_backend_reads_what_another_has_prepared(family, make_artifact, monkeypatch, request):
    """On a GPU torch takes over if a kernel fails, and it always computes batches of a DeBERTa."""
    triton = pytest.importorskip("peltier_adapters.gpu.backend", reason="Triton has no build for this machine")
    backbone: Backbone = request.getfixturevalue(family)
    kernels = triton.TritonBackend(torch.device("cpu"), torch.float32)
    for preset in ("bitfit", "ia3", "compacter", "unipelt-apl"):
        artifact = read_artifact(make_artifact(backbone, preset, proved=False), backbone)
        answers = []
        for prepares in (kernels, TORCH):
            monkeypatch.setattr(choice, "choose_backend", lambda device, dtype, chosen=prepares: chosen)
            row = Row(backbone.tokenizer.encode("a good film"), Banks(backbone).add(artifact))
            monkeypatch.setattr(choice, "choose_backend", lambda device, dtype: TORCH)
            answers.append(forward(backbone, [row])[0].logits)
        assert torch.equal(*answers)


def test_an_artifact_of_loose_tensors_is_copied(bert: Backbone, make_artifact: MakeArtifact):
    (artifact,) = _artifacts(bert, make_artifact, 1)
    loose = Artifact(artifact.manifest, {name: one.clone() for name, one in artifact.tensors.items()}, artifact.digest)
    rows = [Row(bert.tokenizer.encode("a good film"), Banks(bert).add(one)) for one in (artifact, loose)]
    assert torch.equal(*(forward(bert, [row])[0].logits for row in rows))


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
            for one in artifacts * 3:
                banks.add(one)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for _ in range(60):
            found = torch.stack([output.logits for output in forward(bert, rows)])
            assert torch.equal(found, expected)
    finally:
        stop.set()
        thread.join()


class _Shortage(TorchFunctionMode):
    """Call number `number` of torch has no memory."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.left -= 1
        if self.left == -1:
            raise MemoryError
        return func(*args, **(kwargs or {}))


def test_an_adapter_that_found_no_memory_is_added_later(bert: Backbone, make_artifact: MakeArtifact):
    """Whichever allocation fails, the error is that of memory, and the next try answers as the first one would."""
    artifact = read_artifact(make_artifact(bert), bert)
    row = bert.tokenizer.encode("a good film")
    expected = forward(bert, [Row(row, Banks(bert).add(artifact))])[0].logits
    for number in range(0, 10**6, 5):
        banks = Banks(bert)
        with _Shortage(number) as shortage, suppress(MemoryError):
            banks.add(artifact)
        assert torch.equal(forward(bert, [Row(row, banks.add(artifact))])[0].logits, expected)
        if shortage.left >= 0:
            break
    assert number > 10, "it has more allocations"
