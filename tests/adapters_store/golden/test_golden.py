"""What golden examples prove, and attacks that they resist."""

import math
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
from peltier_adapters.golden.golden import (
    check_golden,
    create_twin,
    golden_rows,
    judge_golden,
    judge_stored,
    num_twins,
)
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
    """Another machine adds in another order."""
    assert _check(bert, artifact, _shifted(artifact.manifest, 1e-5)) == []


def test_a_larger_difference_is_a_reason_an_example(bert: Backbone, artifact: Artifact):
    """The reason of each example has its difference and the allowed one."""
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
def test_a_recorded_value_beyond_float32_proves_nothing(
    value: float, task_type: str, bert: Backbone, make_artifact: MakeArtifact
):
    """It becomes infinite in the comparison, and every difference from infinity is too large."""
    labels = ("score",) if task_type == "regression" else ("a", "b")
    artifact = read_artifact(make_artifact(bert, "lora", labels=labels, task_type=task_type), bert)
    outputs = [(value,) * len(labels)] * 3
    assert len(_check(bert, artifact, _recorded(artifact.manifest, *outputs))) == 3


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


def test_labels_of_nearly_equal_probability_may_change_places(bert: Backbone, artifact: Artifact):
    """A difference that is allowed can be between them."""
    close = _recorded(artifact.manifest, (0.0, 1e-5), (0.0, 1e-5), (0.0, 1e-5))
    turned = [RowOutput(torch.tensor([1e-5, 0.0]))] * 3 + [RowOutput(torch.tensor([5.0, 0.0]))]
    assert judge_golden(bert, close, turned) == []


@pytest.mark.parametrize(
    ("tolerances", "reasons"), [(1.9, []), (2.1, ["golden example 0: the label is 'negative', not the recorded one"])]
)
def test_another_label_is_a_reason_if_it_was_clear(
    tolerances: float, reasons: list[str], half: Backbone, artifact: Artifact
):
    """By more than two tolerances. The scores of one example may be so far off only if all are judged together."""
    gap = 2 * math.atanh(tolerances * 2**-8)  # of logits, for a difference of probabilities
    clear = _recorded(artifact.manifest, (0.0, gap), (0.0, 1.0), (0.0, 1.0))
    found = [RowOutput(torch.tensor(logits)) for logits in ((1e-5, 0.0), (0.0, 1.0), (0.0, 1.0), (5.0, 0.0))]
    assert judge_golden(half, clear, found) == reasons


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
def test_recorded_terms_are_different_entries_of_the_vocabulary(
    place: int, bert: Backbone, make_artifact: MakeArtifact
):
    """A number twice, or one beyond the vocabulary, proves nothing."""
    artifact = read_artifact(make_artifact(bert, "lora", task_type="sparse-embedding"), bert)
    assert check_golden(bert, artifact) == []
    outputs = [list(golden.output) for golden in artifact.manifest.golden]
    outputs[1][0] = outputs[1][2] if place else float(bert.config.vocab_size)
    wrong = _recorded(artifact.manifest, *map(tuple, outputs))
    assert _check(bert, artifact, wrong) == ["golden example 1: its terms are not different entries of the vocabulary"]


def test_a_term_beyond_float32_is_refused(half: Backbone, bert: Backbone, make_artifact: MakeArtifact):
    """Also where the precision of the server has twins."""
    artifact = read_artifact(make_artifact(bert, "lora", task_type="sparse-embedding"), bert)
    outputs = [list(golden.output) for golden in artifact.manifest.golden]
    outputs[1][0] = 1e39
    wrong = replace(artifact, manifest=_recorded(artifact.manifest, *map(tuple, outputs)))
    assert check_golden(half, wrong) == ["golden example 1: its terms are not different entries of the vocabulary"]


def test_pairs_prove_themselves(bert: Backbone, make_artifact: MakeArtifact):
    """The golden examples of a pair task are pairs."""
    artifact = read_artifact(make_artifact(bert, "unipelt-ap", inputs="pair"), bert)
    assert _check(bert, artifact, artifact.manifest) == []


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


_ALLOWED = {
    "half": [(0.0, 2**-8), (2**-11, 2**-8), (0.01, 0.05), (0.02, 0.1), (0.5, 2**-3), (float("nan"), 2**-8)],
    "bert_int8": [(0.0, 2**-4), (2**-8, 2**-4), (0.01, 0.08), (0.5, 2**-3), (float("nan"), 2**-4)],
}


@pytest.mark.parametrize(
    ("rounded", "scatter", "allowed"),
    [(rounded, *case) for rounded, cases in _ALLOWED.items() for case in cases],
    indirect=["rounded"],
)
def test_rounding_allows_a_multiple_of_the_scatter_of_twins(
    scatter: float, allowed: float, rounded: Backbone, bert: Backbone, make_artifact: MakeArtifact
):
    """Five times in bfloat16 and eight times in int8; at least one rounding, or sixteen in int8, and at most an eighth,
    for differences in either direction."""
    artifact = read_artifact(make_artifact(bert, "lora", labels=("score",), task_type="regression"), bert)
    manifest = _recorded(artifact.manifest, (0.0,), (0.0,), (0.0,))
    for sign in (1, -1):
        near, far = (_values(*[sign * times * allowed] * 3) for times in (0.99, 1.01))
        twins = [[_values(*(one.logits.item() + way for one in answers[:-1])) for way in (scatter, -scatter)]
                 for answers in (near, far)]  # fmt: skip
        assert judge_golden(rounded, manifest, near, twins[0]) == []
        assert len(judge_golden(rounded, manifest, far, twins[1])) == 3


def _proved(backbone: Backbone, make_artifact: MakeArtifact) -> Manifest:
    """That of a regression whose weights have an output on the substitute, and whose golden outputs are 0."""
    artifact = read_artifact(make_artifact(backbone, "lora", labels=("score",), task_type="regression"), backbone)
    return _recorded(artifact.manifest, (0.0,), (0.0,), (0.0,)).model_copy(update={"substitute_output": (0.0,)})


@pytest.mark.parametrize("rounded", _ALLOWED, indirect=True)
def test_proved_weights_allow_an_eighth_without_twins(rounded: Backbone, bert: Backbone, make_artifact: MakeArtifact):
    """The output on the substitute shows that the weights are right; the rest is the precision's."""
    proved = _proved(bert, make_artifact)
    assert judge_golden(rounded, proved, _values(*[0.99 * 2**-3] * 3)) == []
    assert len(judge_golden(rounded, proved, _values(*[1.01 * 2**-3] * 3))) == 3


@pytest.mark.parametrize("rounded", _ALLOWED, indirect=True)
def test_each_example_of_proved_weights_has_the_tolerance_of_its_own_twins(
    rounded: Backbone, bert: Backbone, make_artifact: MakeArtifact
):
    """If twins move that example as far: then it is rounding, up to a quarter. Another example's twins do not count."""
    proved = _proved(bert, make_artifact)

    def judge(difference: float, *scatters: float) -> list[str]:
        answers = _values(difference, 0.0, 0.0)
        moves = [[way * scatter for scatter in scatters] for way in (1, -1)]
        twins = [_values(difference + first, *others) for first, *others in moves]
        return judge_golden(rounded, proved, answers, twins)

    assert judge(0.2, 0.05, 0.0, 0.0) == []
    assert len(judge(0.2, 0.005, 0.0, 0.0)) == 1
    assert len(judge(0.2, 0.0, 0.05, 0.05)) == 1
    assert len(judge(0.2, math.inf, 0.0, 0.0)) == 1
    (reason,) = judge(0.26, 0.5, 0.0, 0.0)
    assert reason.startswith("golden example 0: scores differ by 0.26 from the recorded ones; 0.25 is allowed in ")


def test_bfloat16_judges_the_examples_together(half: Backbone, bert: Backbone, make_artifact: MakeArtifact):
    """Their root mean square is compared, because the scatter is that of all examples; the reasons name those that
    differ too much."""
    artifact = read_artifact(make_artifact(bert, "lora", labels=("score",), task_type="regression"), bert)
    manifest = _recorded(artifact.manifest, (0.0,), (0.0,), (0.0,))
    assert judge_golden(half, manifest, _values(0.0, 1.7 * 2**-8, 0.0)) == []
    (reason,) = judge_golden(half, manifest, _values(0.0, 1.8 * 2**-8, 0.0))
    assert (
        reason == "golden example 1: scores differ by 0.007 from the recorded ones; 0.00390625 is allowed in bfloat16"
    )


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "t5", "t5_gated"])
def test_no_sound_adapter_is_refused(
    name: str, dtype: str, level: str, request: pytest.FixtureRequest, make_artifact: MakeArtifact
):
    """Of any preset, of several kinds of tasks, and with two draws of random weights, in any precision and at any level
    of the processor. It was made in float32 at the best one."""
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


def test_float32_asks_for_each_example_and_runs_no_twins(bert: Backbone, artifact: Artifact):
    """One wrong example is enough for a refusal."""
    outputs = [golden.output for golden in artifact.manifest.golden]
    outputs[0] = (outputs[0][0] + 0.01, outputs[0][1])
    (reason,) = _check(bert, artifact, _recorded(artifact.manifest, *outputs))
    assert reason.startswith("golden example 0: scores differ")


@pytest.mark.parametrize("place", range(3))
def test_a_recorded_value_that_proves_nothing_is_found_at_any_place(place: int, bert: Backbone, artifact: Artifact):
    """Its difference is NaN, which a maximum of several differences could hide."""
    outputs = [golden.output for golden in artifact.manifest.golden]
    outputs[place] = (1e39, -1e39)
    assert len(_check(bert, artifact, _recorded(artifact.manifest, *outputs))) == 1


def test_every_weight_of_a_twin_is_moved_by_one_rounding(bert: Backbone, make_artifact: Callable[..., bytes]):
    """Up or down by a 256th of its value, about equally often; zeros stay."""
    artifact = read_artifact(make_artifact(bert, "compacter"), bert)
    artifact.tensors["head.bias"].zero_()
    twin = create_twin(bert, artifact, 0)
    assert not twin.tensors["head.bias"].any()
    for name, tensor in artifact.tensors.items():
        moved = (twin.tensors[name] - tensor)[tensor != 0] / tensor[tensor != 0]
        torch.testing.assert_close(moved.abs(), torch.full_like(moved, 2**-8), atol=1e-5, rtol=0)
    weights = artifact.tensors["bottleneck.down.left"]
    assert 0.4 < (twin.tensors["bottleneck.down.left"] > weights).float().mean() < 0.6


def test_twins_are_always_the_same_and_differ_from_each_other(bert: Backbone, make_artifact: Callable[..., bytes]):
    """So all servers judge alike. A twin's digest differs from its adapter's."""
    artifact = read_artifact(make_artifact(bert), bert)
    first, again, other = (create_twin(bert, artifact, number) for number in (0, 0, 1))
    assert all(torch.equal(tensor, again.tensors[name]) for name, tensor in first.tensors.items())
    assert not any(torch.equal(tensor, other.tensors[name]) for name, tensor in first.tensors.items())
    assert first.digest == again.digest
    assert len({artifact.digest, first.digest, other.digest}) == 3


def test_servers_that_round_run_four_twins_where_they_can_help(
    bert: Backbone, bert_int8: Backbone, half: Backbone, make_artifact: MakeArtifact
) -> None:
    """A server in float32 runs none, and no server does for a difference beyond all bounds, or not finite."""
    proved = _proved(bert, make_artifact)
    plain = proved.model_copy(update={"substitute_output": None})
    assert [num_twins(backbone, proved, _values(0.2, 0.0, 0.0)) for backbone in (bert, half, bert_int8)] == [0, 4, 4]
    assert [num_twins(half, one, _values(0.2, 0.2, 0.2)) for one in (proved, plain)] == [4, 0]
    assert [num_twins(half, proved, _values(0.0, far, 0.0)) for far in (0.26, math.nan, math.inf)] == [0, 0, 0]


@pytest.mark.parametrize("rounded", _ALLOWED, indirect=True)
def test_a_stored_version_may_differ_more_only_if_its_weights_are_proved(
    rounded: Backbone, bert: Backbone, make_artifact: MakeArtifact
) -> None:
    """By a quarter of the scores, without a proof by an eighth; no twins are run for it."""
    proved = _proved(bert, make_artifact)
    plain = proved.model_copy(update={"substitute_output": None})
    for manifest, least in ((proved, 0.25), (plain, 0.125)):
        assert judge_stored(rounded, manifest, _values(*[0.99 * least] * 3)) == []
        assert len(judge_stored(rounded, manifest, _values(*[1.01 * least] * 3))) == 3


def test_an_output_of_other_tokens_is_refused_before_it_is_computed(
    bert: Backbone, make_artifact: Callable[..., bytes]
):
    """So the outputs of an upload are bounded by the size of its header."""
    artifact = read_artifact(make_artifact(bert, "bitfit", task_type="token-classification", labels=["O", "B-x"]), bert)
    first, *others = artifact.manifest.golden
    short = first.model_copy(update={"output": first.output[:-2]})
    manifest = artifact.manifest.model_copy(update={"golden": (short, *others)})
    with pytest.raises(ArtifactError, match=f"output has {len(first.output)} values, the recorded one"):
        golden_rows(bert, manifest, Banks(bert).add(artifact))
