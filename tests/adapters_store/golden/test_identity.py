"""What an artifact's output on the substitute of its backbone proves."""

from collections.abc import Callable

import pytest
from peltier_adapters.artifact.artifact import Artifact, read_artifact
from peltier_adapters.artifact.manifest import Manifest
from peltier_adapters.golden.golden import check_golden
from peltier_adapters.golden.identity import SubstituteProof
from peltier_adapters.presets.presets import presets_for
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone

MakeArtifact = Callable[..., bytes]
# A softmax adds to all scores of a query what a bias adds to all keys, so no output of BERT or T5 depends on it.
WITHOUT_EFFECT = {("bitfit", "bias.key")}

# Of the adapter of `make_artifact` without arguments.
RECORDED_ON_ROBERTA = (0.008938342332839966, -0.047952890396118164)


@pytest.fixture
def artifact(bert: Backbone, make_artifact: MakeArtifact) -> Artifact:
    """A true Houlsby adapter."""
    return read_artifact(make_artifact(bert, "houlsby"), bert)


def _with_output(artifact: Artifact, output: tuple[float, ...] | None) -> Artifact:
    manifest = artifact.manifest.model_copy(update={"substitute_output": output})
    return Artifact(manifest, artifact.tensors, artifact.digest)


def _with_tensor(own: Artifact, name: str, other: Artifact) -> Artifact:
    return Artifact(own.manifest, {**own.tensors, name: other.tensors[name]}, f"{own.digest}/{name}")


@pytest.mark.parametrize(
    "name",
    ["bert", *(pytest.param(one, marks=pytest.mark.slow) for one in ("roberta", "modernbert", "t5", "t5_gated"))],
)
def test_every_tensor_of_another_adapter_is_found(name, request, make_artifact):
    """For each preset, each tensor alone, if any output depends on it."""
    backbone: Backbone = request.getfixturevalue(name)
    proof = SubstituteProof(backbone)
    kind = "text2text" if backbone.config.generates else "classification"
    unfound = set()
    for preset in (one.name for one in presets_for(backbone.config)):
        own, other = (
            read_artifact(make_artifact(backbone, preset, task_type=kind, seed=seed), backbone) for seed in (0, 9)
        )
        assert proof.judge(own) == []
        unfound |= {(preset, one) for one in own.tensors if not proof.judge(_with_tensor(own, one, other))}
    assert unfound - WITHOUT_EFFECT == set()


def test_the_substitutes_vocabulary_is_not_kept(bert: Backbone, make_artifact: MakeArtifact):
    """It would be a second copy of the token embeddings, for the rest of the process."""
    artifact = read_artifact(make_artifact(bert, "lora", task_type="sparse-embedding"), bert)
    assert SubstituteProof(bert).judge(artifact) == []
    assert "_vocabulary" not in vars(bert.substitute)


def test_a_coarse_server_refuses_a_tensor_that_moves_its_answers_less_than_rounding(
    bert: Backbone, bert_int8: Backbone, make_artifact: MakeArtifact, artifact: Artifact
):
    """The golden examples alone do not tell it from the right one."""
    wrong = _with_tensor(artifact, "bottleneck.down.bias", read_artifact(make_artifact(bert, "houlsby", seed=9), bert))
    assert check_golden(bert_int8, _with_output(wrong, None)) == []
    (reason,) = check_golden(bert_int8, wrong)
    assert reason.startswith(
        "the adapter's weights are not those of the recorded outputs: on the backbone's substitute"
    )
    assert reason.endswith("; 1e-05 is allowed")
    assert check_golden(bert_int8, artifact) == []


def test_a_setting_without_a_tensor_is_proved_too(bert: Backbone, make_artifact: MakeArtifact):
    """LoRA's alpha multiplies its weights."""
    artifact = read_artifact(make_artifact(bert, "lora"), bert)
    lora, head = artifact.manifest.parts
    manifest = artifact.manifest.model_copy(update={"parts": (lora.model_copy(update={"alpha": 8.0}), head)})
    assert len(SubstituteProof(bert).judge(Artifact(manifest, artifact.tensors, artifact.digest))) == 1


def test_files_of_older_releases_keep_their_rule(bert: Backbone, artifact: Artifact):
    """They have no output on the substitute, and a written manifest does not mention it."""
    older = _with_output(artifact, None)
    assert SubstituteProof(bert).judge(older) == []
    assert "substitute_output" not in older.manifest.model_dump(mode="json")
    assert Manifest.model_validate_json(artifact.manifest.model_dump_json()) == artifact.manifest


@pytest.mark.parametrize("value", [1e308, -1e308, 4e38])
def test_a_recorded_value_beyond_float32_proves_nothing(value: float, bert: Backbone, artifact: Artifact):
    """It differs from every output, relative to its own size too."""
    assert len(SubstituteProof(bert).judge(_with_output(artifact, (value, value)))) == 1


def test_another_number_of_values_is_a_reason(bert: Backbone, artifact: Artifact):
    """Nothing can be compared then."""
    (reason,) = SubstituteProof(bert).judge(_with_output(artifact, (0.0,)))
    assert reason == "the substitute's output has 2 values, the recorded one 1"


def test_all_precisions_share_a_substitute(bert, bert_int8, bert_directory, artifact):
    """An output is the same on each of them, bit for bit on one machine."""
    half = load_backbone(str(bert_directory), dtype="bfloat16")
    outputs = [SubstituteProof(one).run(artifact).tolist() for one in (bert, half, bert_int8)]
    assert outputs[0] == outputs[1] == outputs[2] == list(artifact.manifest.substitute_output or ())


def test_an_output_that_an_earlier_release_recorded_on_a_roberta_still_proves(roberta, make_artifact):
    """One id of the fixed row is RoBERTa's padding, which took a position when the outputs were recorded."""
    own = read_artifact(make_artifact(roberta, "houlsby"), roberta)
    assert SubstituteProof(roberta).judge(_with_output(own, RECORDED_ON_ROBERTA)) == []
