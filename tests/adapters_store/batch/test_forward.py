"""The forward pass from rows to outputs; inputs that do not fit are refused in one sentence."""

import re
from collections.abc import Callable

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.errors import InputError
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.tasks import DecodingSpec, TaskSpec
from peltier_backbone.backbone import Backbone

SINGLE = TaskSpec(type="classification", labels=("a", "b"), inputs="single", max_length=8)
PAIR = SINGLE.model_copy(update={"inputs": "pair"})


@pytest.fixture(scope="module")
def resident(bert: Backbone, make_artifact: Callable[..., bytes]) -> Resident:
    """A LoRA in its slots."""
    return Banks(bert).add(read_artifact(make_artifact(bert, "lora"), bert))


def test_inputs_become_tokens(bert: Backbone):
    assert len(encode_input(bert, SINGLE, "good film")) == 4
    assert encode_input(bert, PAIR, ("good", "film")).types == (0, 0, 0, 1, 1)


def test_long_inputs_are_truncated(bert: Backbone):
    """To the task's own length, unless the caller forbids it."""
    assert len(encode_input(bert, SINGLE, "a " * 50)) == 8
    assert len(encode_input(bert, PAIR, ("a " * 50, "b"))) == 8


TRIPLE = TaskSpec(
    type="text2text",
    labels=(),
    inputs="triple",
    max_length=8,
    template="good: {text} film: {pair} plot: {third}",
    decoding=DecodingSpec(answer="generate"),
)
PADDED = SINGLE.model_copy(update={"padded": True})


@pytest.mark.parametrize(
    ("family", "task", "value", "special"),
    [
        ("bert", SINGLE, ("a " * 50,), 2),
        ("bert", PADDED, ("a " * 50,), 2),
        ("bert", PAIR, ("a " * 50, "b " * 7), 3),
        ("bert", PAIR, ("a", "b " * 70), 3),
        ("roberta", PAIR, ("ab", "b" * 70), 4),
        ("t5", TRIPLE, ("a", "b", "c " * 20), 1),
        ("t5", TRIPLE, ("a", "b", "c"), 1),
    ],
    ids=str,
)
def test_a_long_input_is_counted_alike_whether_truncated_or_refused(family, task, value, special, request):
    """What is kept and what is dropped are what a refusal names: every text, the template and the special tokens."""
    backbone: Backbone = request.getfixturevalue(family)
    given = value if len(value) > 1 else value[0]
    num_tokens = special + sum(len(backbone.tokenizer.ids(text)) for text in task.render(*value))
    found = encode_input(backbone, task, given)
    assert (len(found), found.num_dropped) == (8, num_tokens - 8)
    with pytest.raises(InputError, match=f"the input has {num_tokens} tokens; this task takes at most 8$"):
        encode_input(backbone, task, given, truncate=False)


@pytest.mark.parametrize("task", [SINGLE, PADDED], ids=["plain", "padded"])
def test_an_input_that_just_fits_is_not_truncated(task: TaskSpec, bert: Backbone):
    for truncate in (True, False):
        assert encode_input(bert, task, "a " * 6, truncate=truncate).num_dropped == 0
    assert encode_input(bert, task, "a " * 7).num_dropped == 1


@pytest.mark.parametrize(
    ("task", "value", "truncate", "sentence"),
    [
        (SINGLE, ("a", "b"), True, "the input is a pair of texts [text, pair]; this task takes one text"),
        (PAIR, ("a", "b", "c"), True, "the input is three texts [text, pair, third]; this task takes a pair of texts"),
        (PAIR, "a", True, "the input is one text; this task takes a pair of texts [text, pair]"),
        (SINGLE, "", True, "an input text is empty; every text must have at least one visible character"),
        (SINGLE, " \n\t", True, "an input text is empty"),
        (PAIR, ("a", ""), True, "an input text is empty"),
        (SINGLE, "a " * 50, False, "the input has 52 tokens; this task takes at most 8"),
        (SINGLE, "ab\ud800", True, "an input text has a lone surrogate '\\ud800' at character 2"),
    ],
    ids=str,
)
def test_an_input_that_does_not_fit_is_told_why(task, value, truncate, sentence, bert):
    with pytest.raises(InputError, match=re.escape(sentence)):
        encode_input(bert, task, value, truncate=truncate)


@pytest.mark.parametrize(
    "text", ["a\x00", "😀", "\u200ba", "東京", "[SEP] [CLS] [PAD]", "a\u0301" * 5, "a\x7f", "a" * 10_000]
)
def test_any_unicode_is_answered(text: str, bert: Backbone, resident: Resident):
    """Control characters, emoji, unknown letters and special-token names give finite logits."""
    row = Row(encode_input(bert, resident.task, text), resident)
    assert bool(torch.isfinite(forward(bert, [row])[0].logits).all())


def test_outputs_keep_the_order_of_the_rows(bert: Backbone, resident: Resident):
    encoded = [bert.tokenizer.encode(text) for text in ("bad", "a good film", "dull")]
    rows = [Row(one, resident if number != 1 else None) for number, one in enumerate(encoded)]
    found = forward(bert, rows)
    assert [len(output.logits) for output in found] == [2, 48, 2]
    for output, row in zip(found, rows, strict=True):
        torch.testing.assert_close(output.logits, forward(bert, [row])[0].logits, atol=1e-5, rtol=0)


def test_a_row_without_adapter_is_the_first_token(bert: Backbone):
    encoded = bert.tokenizer.encode("a good film")
    with torch.inference_mode():
        expected = bert.model(bert.pack([encoded]))[0]
    torch.testing.assert_close(forward(bert, [Row(encoded)])[0].logits, expected, atol=1e-5, rtol=0)


def test_logits_are_float32_on_the_cpu(bert: Backbone, resident: Resident):
    """Callers need no device and no half precision."""
    logits = forward(bert, [Row(bert.tokenizer.encode("bad"), resident)])[0].logits
    assert (logits.dtype, logits.device.type, logits.requires_grad) == (torch.float32, "cpu", False)


def test_gates_are_recorded_on_request(bert: Backbone, make_artifact: Callable[..., bytes], resident: Resident):
    """One value a layer for each gate of a UniPELT, between zero and one; nothing for other rows."""
    gated = Banks(bert).add(read_artifact(make_artifact(bert, "unipelt-apl"), bert))
    encoded = bert.tokenizer.encode("a good film")
    outputs = forward(bert, [Row(encoded, gated), Row(encoded, resident)], record_gates=True)
    assert outputs[0].gates is not None
    assert outputs[0].gates.keys() == {"prefix", "lora.query", "lora.value", "bottleneck.ffn"}
    assert all(len(layers) == 3 and all(0 < gate < 1 for gate in layers) for layers in outputs[0].gates.values())
    assert outputs[1].gates is None
    assert forward(bert, [Row(encoded, gated)])[0].gates is None


def test_gates_stand_at_their_layers(bert: Backbone, make_artifact: Callable[..., bytes]):
    """A layer without the part has None in its place."""
    data = make_artifact(bert, "unipelt-apl", overrides={"skip": "2"})
    row = Row(bert.tokenizer.encode("a good film"), Banks(bert).add(read_artifact(data, bert)))
    gates = forward(bert, [row], record_gates=True)[0].gates
    assert gates is not None
    assert [gate is None for gate in gates["bottleneck.ffn"]] == [True, True, False]
    assert None not in gates["prefix"]


def test_gates_of_t5_are_the_encoders(t5: Backbone, make_artifact: Callable[..., bytes]):
    """Of LoRA on values too, which reads the encoder's output in cross-attention."""
    resident = Banks(t5).add(read_artifact(make_artifact(t5, "unipelt-apl"), t5))
    gates = forward(t5, [Row(t5.tokenizer.encode("a good film"), resident)], record_gates=True)[0].gates
    assert gates is not None
    assert {len(layers) for layers in gates.values()} == {t5.config.num_layers}


def test_the_same_batch_twice_is_bit_equal(bert: Backbone, resident: Resident):
    """Nothing is drawn and nothing is remembered."""
    rows = [Row(bert.tokenizer.encode(text), resident) for text in ("bad", "a good film")]
    assert all(torch.equal(a.logits, b.logits) for a, b in zip(forward(bert, rows), forward(bert, rows), strict=True))


def test_padding_an_adapter_with_zeros_changes_nothing(bert: Backbone, make_artifact: Callable[..., bytes]):
    """Conformance vector 9: a wider bottleneck whose new units are zero is the same function."""
    narrow = read_artifact(make_artifact(bert, "houlsby", overrides={"bottleneck": "5"}), bert)
    wide = read_artifact(make_artifact(bert, "houlsby", overrides={"bottleneck": "9"}), bert)
    padded = {name: torch.zeros_like(tensor) for name, tensor in wide.tensors.items()}
    for name, tensor in narrow.tensors.items():
        padded[name][tuple(slice(size) for size in tensor.shape)] = tensor
    encoded = bert.tokenizer.encode("a good film")
    banks = Banks(bert)
    residents = [banks.add(narrow), banks.add(type(wide)(wide.manifest, padded, wide.digest))]
    one, other = forward(bert, [Row(encoded, resident) for resident in residents])
    torch.testing.assert_close(one.logits, other.logits, atol=1e-5, rtol=0)
