"""What golden examples prove, and attacks that they resist."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from peltier_adapters.artifact.artifact import Artifact, read_artifact
from peltier_adapters.artifact.manifest import Golden, Manifest
from peltier_adapters.batch.row import RowOutput
from peltier_adapters.errors import ArtifactError
from peltier_adapters.golden.golden import check_golden, golden_rows, judge_golden, judge_stored
from peltier_adapters.presets.presets import presets_for
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import DTYPES, load_backbone

from tests.support.levels import LEVELS, forced_level

MakeArtifact = Callable[..., bytes]


@pytest.fixture
def artifact(bert: Backbone, make_artifact: MakeArtifact) -> Artifact:
    """A true LoRA."""
    return read_artifact(make_artifact(bert, "lora"), bert)


def _recorded(manifest: Manifest, *outputs: tuple[float, ...]) -> Manifest:
    golden = [Golden(input=old.input, output=new) for old, new in zip(manifest.golden, outputs, strict=True)]
    return manifest.model_copy(update={"golden": tuple(golden), "substitute_output": None})


def _check(backbone: Backbone, artifact: Artifact, manifest: Manifest) -> list[str]:
    return check_golden(backbone, Artifact(manifest, artifact.tensors, artifact.digest))


def _shifted(manifest: Manifest, by: float) -> Manifest:
    """The first class a little more or less probable in every example."""
    return _recorded(manifest, *((golden.output[0] + by, *golden.output[1:]) for golden in manifest.golden))


def test_a_difference_of_rounding_is_allowed(bert: Backbone, artifact: Artifact):
    assert _check(bert, artifact, _shifted(artifact.manifest, 1e-5)) == []


def test_a_larger_difference_is_a_reason_an_example(bert: Backbone, artifact: Artifact):
    reasons = _check(bert, artifact, _shifted(artifact.manifest, 0.01))
    assert len(reasons) == 3
    assert reasons[2].startswith("golden example 2: scores differ by 0.00")
    assert reasons[2].endswith("from the recorded ones; 0.0001 is allowed")


def test_a_constant_on_all_logits_is_no_difference(bert: Backbone, artifact: Artifact):
    """Probabilities are compared, as callers see them."""
    outputs = [tuple(value + 3 for value in golden.output) for golden in artifact.manifest.golden]
    assert _check(bert, artifact, _recorded(artifact.manifest, *outputs)) == []


def test_a_changed_scale_is_found_out(bert: Backbone, artifact: Artifact):
    """LoRA's alpha does not change a shape, so only golden examples detect another value."""
    lora, head = artifact.manifest.parts
    manifest = artifact.manifest.model_copy(update={"parts": (lora.model_copy(update={"alpha": 8.0}), head)})
    assert len(_check(bert, artifact, manifest)) == 3


@pytest.mark.parametrize("value", [1e308, -1e308, 1e39, 4e38])
@pytest.mark.parametrize("task_type", ["classification", "multilabel", "regression"])
def test_a_recorded_value_beyond_float32_proves_nothing(value, task_type, bert, make_artifact):
    """It becomes infinite or NaN in the comparison, which a maximum of several differences could hide."""
    labels = ("score",) if task_type == "regression" else ("a", "b")
    artifact = read_artifact(make_artifact(bert, "lora", labels=labels, task_type=task_type), bert)
    own = [golden.output for golden in artifact.manifest.golden]
    for place in range(3):
        wrong = [*own[:place], (value,) * len(labels), *own[place + 1 :]]
        assert len(_check(bert, artifact, _recorded(artifact.manifest, *wrong))) == 1


def test_large_regression_values_are_compared_relatively(bert: Backbone, make_artifact: MakeArtifact):
    """A value of a thousand may differ in its seventh digit, but not in its third."""
    artifact = read_artifact(make_artifact(bert, "lora", labels=("score",), task_type="regression"), bert)
    wide = {name: tensor * 1000 if name.startswith("head") else tensor for name, tensor in artifact.tensors.items()}
    loud = Artifact(artifact.manifest, wide, artifact.digest)
    outputs = [(1000 * golden.output[0],) for golden in artifact.manifest.golden]
    assert _check(bert, loud, _recorded(artifact.manifest, *outputs)) == []
    assert _check(bert, loud, _recorded(artifact.manifest, *((1.01 * value,) for (value,) in outputs)))


def test_an_output_that_is_not_finite_is_a_reason(bert: Backbone, artifact: Artifact):
    """Finite weights can still overflow."""
    loud = {name: tensor * 1e30 if name.startswith("lora") else tensor for name, tensor in artifact.tensors.items()}
    reasons = _check(bert, Artifact(artifact.manifest, loud, artifact.digest), artifact.manifest)
    assert reasons[0] == "golden example 0: this server's output is not finite"


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_an_empty_golden_input_is_a_reason(text: str, bert: Backbone, artifact: Artifact):
    """The task must accept the inputs of its golden examples."""
    golden = (Golden(input=text, output=(0.0, 0.0)), *artifact.manifest.golden[1:])
    with pytest.raises(ArtifactError, match=r"^golden example 0: an input text is empty"):
        _check(bert, artifact, artifact.manifest.model_copy(update={"golden": golden}))


def test_embeddings_are_compared_as_vectors(bert: Backbone, make_artifact: MakeArtifact):
    """The length of the difference counts; of normalized embeddings only the direction counts."""
    for normalized in (False, True):
        artifact = read_artifact(make_artifact(bert, "lora", task_type="embedding", normalized=normalized), bert)
        old = [torch.tensor(golden.output) for golden in artifact.manifest.golden]
        assert _check(bert, artifact, artifact.manifest) == []
        turned = _recorded(artifact.manifest, *(tuple((one + 0.01 * one.norm() * one.sign()).tolist()) for one in old))
        assert len(_check(bert, artifact, turned)) == len(old)
        longer = _recorded(artifact.manifest, *(tuple((2 * one).tolist()) for one in old))
        assert bool(_check(bert, artifact, longer)) is not normalized


@pytest.mark.parametrize("place", [0, 1])
def test_recorded_terms_are_different_entries_of_the_vocabulary(place, bert, make_artifact):
    """A number twice, or one beyond the vocabulary, proves nothing."""
    artifact = read_artifact(make_artifact(bert, "lora", task_type="sparse-embedding"), bert)
    assert check_golden(bert, artifact) == []
    outputs = [list(golden.output) for golden in artifact.manifest.golden]
    outputs[1][0] = outputs[1][2] if place else float(bert.config.vocab_size)
    wrong = _recorded(artifact.manifest, *map(tuple, outputs))
    assert _check(bert, artifact, wrong) == ["golden example 1: its terms are not different entries of the vocabulary"]


def test_a_term_beyond_float32_is_refused(half: Backbone, bert: Backbone, make_artifact: MakeArtifact):
    """Also in a precision that allows a quarter."""
    artifact = read_artifact(make_artifact(bert, "lora", task_type="sparse-embedding"), bert)
    outputs = [list(golden.output) for golden in artifact.manifest.golden]
    outputs[1][0] = 1e39
    wrong = replace(artifact, manifest=_recorded(artifact.manifest, *map(tuple, outputs)))
    assert check_golden(half, wrong) == ["golden example 1: its terms are not different entries of the vocabulary"]


@pytest.fixture
def half(bert_directory: Path) -> Backbone:
    """The small BERT in bfloat16."""
    return load_backbone(str(bert_directory), dtype="bfloat16")


@pytest.fixture
def rounded(request: pytest.FixtureRequest) -> Backbone:
    """The small BERT in the precision that the test names by its fixture."""
    backbone: Backbone = request.getfixturevalue(request.param)
    return backbone


def _values(*values: float) -> list[RowOutput]:
    """Answers of a regression to its golden examples, and a bare backbone's that is none of them."""
    return [RowOutput(torch.tensor([value])) for value in (*values, 9.0)]


@pytest.mark.parametrize(
    ("rounded", "with_substitute", "without"),
    [("bert", 1e-4, 1e-4), ("half", 2**-2, 2**-3), ("bert_int8", 2**-2, 2**-3)],
    indirect=["rounded"],
)
def test_each_precision_has_one_tolerance(rounded, with_substitute, without, bert, make_artifact):
    """In either direction; a coarse one is half as large without an output on the substitute."""
    artifact = read_artifact(make_artifact(bert, "lora", labels=("score",), task_type="regression"), bert)
    plain = _recorded(artifact.manifest, (0.0,), (0.0,), (0.0,))
    proved = plain.model_copy(update={"substitute_output": (0.0,)})
    for manifest, allowed in ((proved, with_substitute), (plain, without)):
        for judge, sign in product((judge_golden, judge_stored), (1, -1)):
            assert judge(rounded, manifest, _values(0.0, sign * 0.99 * allowed, 0.0)) == []
            (reason,) = judge(rounded, manifest, _values(0.0, sign * 1.01 * allowed, 0.0))
            assert reason.startswith("golden example 1: scores differ by ")
            assert f" from the recorded ones; {allowed:g} is allowed" in reason


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "t5", "t5_gated"])
def test_no_sound_adapter_is_refused(name, dtype, level, request, make_artifact):
    """Of any preset and kind of task, in any precision, at any level; it was made in float32 at the best one."""
    exact: Backbone = request.getfixturevalue(name)
    generates, presets = exact.config.generates, [preset.name for preset in presets_for(exact.config)]
    kinds = (
        ("text2text", "classification") if generates else ("classification", "regression", "embedding", "multilabel")
    )
    cases = list(product(presets, kinds, range(2)))
    made = {case: _make(exact, make_artifact, *case) for case in cases}
    with forced_level(level):
        served = load_backbone(exact.name, dtype=dtype)
        refused = {case: check_golden(served, read_artifact(data, served)) for case, data in made.items()}
    assert {case: reasons for case, reasons in refused.items() if reasons} == {}


def _make(backbone: Backbone, make_artifact: MakeArtifact, preset: str, kind: str, seed: int) -> bytes:
    labels = ("score",) if kind == "regression" else ("negative", "positive")
    return make_artifact(backbone, preset, task_type=kind, labels=labels, seed=seed)


def test_an_output_of_other_tokens_is_refused_before_it_is_computed(bert, make_artifact):
    """So the outputs of an upload are bounded by the size of its header."""
    artifact = read_artifact(make_artifact(bert, "bitfit", task_type="token-classification", labels=["O", "B-x"]), bert)
    first, *others = artifact.manifest.golden
    short = first.model_copy(update={"output": first.output[:-2]})
    manifest = artifact.manifest.model_copy(update={"golden": (short, *others)})
    with pytest.raises(ArtifactError, match=f"output has {len(first.output)} values, the recorded one"):
        golden_rows(bert, manifest, Banks(bert).add(artifact))
