"""From trained tensors to an artifact that proves itself."""

import pytest
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.artifact.manifest import TrainingRecord
from peltier_adapters.golden import proof
from peltier_adapters.golden.golden import check_golden
from peltier_adapters.golden.proof import Candidate
from peltier_adapters.inputs import encode_input
from peltier_adapters.parts import init_tensors
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.spec.tasks import DecodingSpec, TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_training.data.examples import Example
from peltier_training.errors import TrainingError
from peltier_training.evaluate.export import GOLDEN_EXAMPLES, export, golden_inputs, measure
from torch import Generator

TASK = TaskSpec(type="classification", labels=("a", "b"), inputs="single", max_length=16)


def create_trained(bert: Backbone, preset: str) -> Candidate:
    """A fresh adapter: a Houlsby changes the backbone from the start, a LoRA does not."""
    parts = find_preset(preset).compose(find_preset(preset).settings({}, bert.config), bert.config, outputs=2)
    return Candidate("toy", preset, parts, init_tensors(parts, bert, Generator().manual_seed(0)), TASK)


def test_golden_inputs_span_the_lengths(bert: Backbone):
    """Distinct inputs from the shortest to the longest, none twice."""
    texts = ["film " * count for count in range(1, 13)] * 2
    chosen = golden_inputs(bert, TASK, texts)
    lengths = [len(encode_input(bert, TASK, one)) for one in chosen]
    assert len(set(chosen)) == len(chosen) == GOLDEN_EXAMPLES
    assert lengths == sorted(lengths)
    assert (chosen[0], chosen[-1]) == ("film ", "film " * 12)


def test_a_single_input_is_golden_enough(bert: Backbone):
    """A validation file of one text."""
    assert golden_inputs(bert, TASK, ["good", "good"]) == ["good"]


def test_golden_outputs_are_the_servers(bert: Backbone):
    """What is recorded is what the exported tensors give, and the same export gives the same bytes."""
    trained = create_trained(bert, "houlsby")
    data = export(bert, trained, ["good", "bad film"], TrainingRecord())
    assert data == export(bert, trained, ["good", "bad film"], TrainingRecord())
    golden = read_artifact(data, bert).manifest.golden
    assert [one.input for one in golden] == ["good", "bad film"]
    assert any(value != 0 for one in golden for value in one.output)


def test_an_adapter_without_effect_is_not_exported(bert: Backbone):
    """Every server would refuse it."""
    with pytest.raises(
        TrainingError, match="adapter 'toy' does not reproduce its golden examples: the adapter has no effect"
    ):
        export(bert, create_trained(bert, "lora"), ["good", "bad"], TrainingRecord())


def test_an_adapter_is_proved_where_it_was_trained_too(bert: Backbone, bert_int8: Backbone):
    """The manifest names both precisions. Without a second one it says nothing, as older releases wrote it."""
    trained, inputs = create_trained(bert, "houlsby"), ["good", "bad film"]
    plain, both = (export(bert, trained, inputs, TrainingRecord(), other) for other in (None, bert_int8))
    assert b"proved" not in plain
    assert read_artifact(plain, bert).manifest.proved == ("float32",)
    assert read_artifact(both, bert).manifest.proved == ("float32", "int8")
    assert check_golden(bert_int8, read_artifact(both, bert_int8)) == []


def test_an_adapter_that_does_not_hold_where_it_was_trained_says_so(
    bert: Backbone, bert_int8: Backbone, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """It is written all the same, for servers in float32; the log says what int8 servers will say."""
    trained, judge = create_trained(bert, "houlsby"), proof.check_golden
    reason = "golden example 0: scores differ by 0.5 from the recorded ones; 0.125 is allowed in int8"
    monkeypatch.setattr(proof, "check_golden", lambda at, one: judge(at, one) if at is bert else [reason])
    data = export(bert, trained, ["good", "bad film"], TrainingRecord(), bert_int8)
    assert read_artifact(data, bert).manifest.proved == ("float32",)
    assert caplog.messages == [f"servers in int8 will refuse adapter 'toy': {reason}"]


def test_measuring_needs_no_golden_outputs(bert: Backbone):
    """Metrics come before the record that holds them."""
    examples = [Example("good", "a", "d:1"), Example("bad", "b", "d:2")]
    found = measure(bert, create_trained(bert, "houlsby"), examples)
    assert sorted(found.metrics) == ["accuracy", "f1", "f1_macro", "matthews"]


def test_a_text_that_is_empty_is_proved_by_its_input(t5: Backbone, monkeypatch: pytest.MonkeyPatch):
    """An adapter that has nothing to say still proves itself."""
    settings = find_preset("lora").settings({}, t5.config)
    parts = find_preset("lora").compose(settings, t5.config, outputs=0)
    generator = Generator().manual_seed(0)
    tensors = {name: tensor + 0.1 for name, tensor in init_tensors(parts, t5, generator).items()}
    task = TaskSpec(
        type="text2text",
        labels=(),
        inputs="single",
        max_length=16,
        template="{text}",
        decoding=DecodingSpec(answer="generate", max_new_tokens=4),
    )
    trained = Candidate("toy", "lora", parts, tensors, task)
    monkeypatch.setattr("peltier_adapters.golden.proof.write", lambda *_: ["", "a film"])
    golden = read_artifact(export(t5, trained, ["bad", "dull plot"], TrainingRecord()), t5).manifest.golden
    assert [one.text for one in golden] == ["bad", "a film"]
