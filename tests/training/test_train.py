"""Whole runs on a small random backbone."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.artifact.artifact import Artifact, load_artifact
from peltier_adapters.golden.golden import check_golden
from peltier_backbone import load
from peltier_backbone.backbone import Backbone
from peltier_backbone.linear.linear import PlainLinear
from peltier_backbone.load import load_backbone
from peltier_training.config.preparation import prepare_evaluation
from peltier_training.config.run import RANKING_LOSSES, Run
from peltier_training.data.data import Data
from peltier_training.data.examples import read_examples
from peltier_training.errors import TrainingError
from peltier_training.evaluate.examination import evaluate
from peltier_training.fit.objective import HeadObjective
from peltier_training.report.merging import Merging
from peltier_training.train import train

MakeRun = Callable[..., Run]
MIXTURE = {"preset": "adamix", "overrides": {"bottleneck": "8"}}


def proved(run: Run, backbone: Backbone) -> Artifact:
    """The run's artifact, accepted as a server accepts it."""
    artifact = load_artifact(run.output, backbone)
    assert check_golden(backbone, artifact) == []
    return artifact


def same(one: Artifact, other: Artifact) -> bool:
    return all(torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())


def logged(run: Run, name: str) -> list[float]:
    """A metric of each epoch, as the newest checkpoint's state has it."""
    states = sorted(run.directory.glob("checkpoint-*/trainer_state.json"), key=lambda path: int(path.parent.name[11:]))
    return [entry[name] for entry in json.loads(states[-1].read_text())["log_history"] if name in entry]


@pytest.mark.parametrize("task_type", ["classification", "multilabel", "regression", "ranking"])
@pytest.mark.parametrize("preset", ["unipelt-ap", "adamix"])
def test_a_run_writes_a_proved_artifact(make_run: MakeRun, bert: Backbone, task_type: str, preset: str):
    """Every task type ends in an artifact that proves itself and records the metrics that `evaluate` finds."""
    run = make_run(task_type, preset, epochs=1)
    before = bert.weights_digest()
    manifest = train(run).manifest
    artifact = proved(run, bert)
    assert artifact.manifest == manifest
    assert (manifest.task.type, manifest.preset, manifest.name) == (task_type, preset, "toy")
    found = evaluate(bert, artifact, read_examples(run.data.validation, run.data.text_columns, "label"))
    assert manifest.training.metrics == pytest.approx(found)
    assert bert.weights_digest() == before


# Full fine-tuning learns other types of tasks in `test_learners.py`; both losses are quick with an adapter.
@pytest.mark.parametrize("preset", ["lora", pytest.param("full", marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", RANKING_LOSSES)
def test_a_ranking_learns_which_documents_fit(make_run: MakeRun, preset: str, loss: str):
    """Good documents come before the others, by both losses; chance gives a reciprocal rank of 0.52."""
    run = make_run("ranking", preset, epochs=8, learning_rate=1e-2 if preset == "lora" else 1e-3, ranking_loss=loss)
    assert train(run).metrics["mrr"] > 0.8


def test_a_token_classification_writes_a_proved_artifact(make_run: MakeRun, bert: Backbone):
    """It learns, and its report has the scores of each label and the mistakes."""
    run = make_run(
        "token-classification", "compacter", epochs=8, learning_rate=2e-2, stride=4, max_length=8, backbone_dropout=0.0
    )
    result = train(run)
    artifact = proved(run, bert)
    assert artifact.manifest.task.labels == ("O", "B-praise", "I-praise", "B-who", "I-who")
    assert (artifact.manifest.task.stride, artifact.manifest.parts[-1].outputs) == (4, 5)
    rows = prepare_evaluation(run.output, run.data.validation, bert.name, {})
    assert evaluate(bert, artifact, rows.examples) == pytest.approx(result.metrics)
    assert set(result.metrics) == {"f1", "precision", "recall"}
    assert result.metrics["f1"] > 0.5
    assert [one.label for one in result.report.label_scores] == ["praise", "who"]
    assert result.report.mistakes is not None


def test_the_record_says_how_it_was_made(make_run: MakeRun):
    """Data, numbers with the preset's learning rate, settings and versions."""
    record = train(make_run(epochs=1, seed=7, overrides={"bottleneck": "8"})).manifest.training
    assert record.data["train_rows"] == 48
    assert record.data["validation"] == "classification-validation.jsonl"
    assert {
        "learning_rate": 3e-3,
        "seed": 7,
        "metric": "accuracy",
        "epochs": 1,
    }.items() <= record.hyperparameters.items()
    assert record.hyperparameters["settings"]["bottleneck"] == 8
    assert sorted(record.versions) == ["peltier", "torch", "transformers"]


def test_a_run_leaves_small_checkpoints_and_curves(make_run: MakeRun):
    """Checkpoints hold the adapter alone, TensorBoard has its events, and nothing half-written stays."""
    run = make_run()
    train(run)
    checkpoints = sorted(run.directory.glob("checkpoint-*"))
    assert [path.name for path in checkpoints] == ["checkpoint-3", "checkpoint-6"]
    assert (checkpoints[0] / "model.safetensors").stat().st_size < 1.2 * run.output.stat().st_size
    assert list(run.directory.rglob("events.out.tfevents.*"))
    files = sorted(path.name for path in run.output.parent.iterdir() if path.is_file())
    assert files == ["toy.report.html", "toy.report.json", "toy.safetensors"]


def turned(run: Run, folder: Path) -> Run:
    """The run with validation labels that say the opposite of the training labels."""
    rows = [json.loads(line) for line in run.data.validation.read_text().splitlines()]
    path = folder / "turned.jsonl"
    path.write_text("".join(json.dumps(row | {"label": -4 * row["label"]}) + "\n" for row in rows))
    return replace(run, data=replace(run.data, validation=path))


def test_patience_has_an_end(make_run: MakeRun, tmp_path: Path):
    """Two epochs without a better one are the last."""
    run = turned(make_run("regression", "lora", epochs=12, learning_rate=1e-2, metric="mse", patience=2), tmp_path)
    train(run)
    errors = logged(run, "eval_mse")
    assert len(errors) == errors.index(min(errors)) + 3 < 12


@pytest.mark.slow
def test_patience_outlives_a_break(make_run: MakeRun, tmp_path: Path):
    """Resumed at its end a run does not train on, and resumed before it ends where it would have."""
    run = turned(make_run("regression", "lora", epochs=12, learning_rate=1e-2, metric="mse", patience=2), tmp_path)
    metrics = train(run).manifest.training.metrics
    errors = logged(run, "eval_mse")
    assert train(replace(run, resume=True)).manifest.training.metrics == metrics
    assert logged(run, "eval_mse") == errors
    shutil.rmtree(run.directory / f"checkpoint-{3 * len(errors)}")
    train(replace(run, resume=True))
    assert len(logged(run, "eval_mse")) == len(errors)


def test_an_artifact_outlives_its_merge_report(make_run: MakeRun, bert: Backbone, monkeypatch: pytest.MonkeyPatch):
    """It is written before the routes are measured, which may fail."""
    monkeypatch.setattr(Merging, "create", lambda *_: 1 / 0)
    run = make_run(preset="adamix", epochs=1, overrides={"bottleneck": "8"})
    with pytest.raises(ZeroDivisionError):
        train(run)
    assert load_artifact(run.output, bert).manifest.preset == "adamix"


def test_the_best_epoch_is_kept(make_run: MakeRun, bert: Backbone, tmp_path: Path):
    """Against turned validation labels learning makes things worse: an epoch before the last is exported."""
    run = turned(
        make_run("regression", "lora", epochs=3, learning_rate=1e-2, metric="mse", backbone_dropout=0.0), tmp_path
    )
    metrics = train(run).manifest.training.metrics
    errors = logged(run, "eval_mse")
    assert len(errors) == 3
    assert errors[2] > 1.01 * min(errors)
    assert metrics["mse"] == pytest.approx(min(errors), rel=1e-5)


@pytest.mark.parametrize(
    "method", [{"preset": "unipelt-ap"}, pytest.param(MIXTURE, marks=pytest.mark.slow)], ids=["unipelt-ap", "adamix"]
)
def test_the_seed_decides_everything(
    make_run: MakeRun, bert: Backbone, monkeypatch: pytest.MonkeyPatch, method: dict[str, Any]
):
    """Initialisation, order, dropout and routes: the same seed gives the same tensors, another seed others."""
    monkeypatch.setattr(load, "choose_linear", lambda *_: PlainLinear)  # the choice by time may differ from run to run
    artifacts = []
    for seed in (3, 3, 4):
        torch.rand(seed)  # whatever was drawn before does not matter
        run = make_run(seed=seed, epochs=1, **method)
        train(run)
        artifacts.append(load_artifact(run.output, bert))
    assert same(artifacts[0], artifacts[1])
    assert not same(artifacts[0], artifacts[2])


class PowerCut(Exception):
    """The machine goes off."""


# A checkpoint of a mixture is read by the same code as that of a Compacter.
@pytest.mark.parametrize(
    "method", [pytest.param({}, id="compacter"), pytest.param(MIXTURE, id="adamix", marks=pytest.mark.slow)]
)
def test_resume_goes_on_as_if_never_stopped(
    make_run: MakeRun, bert: Backbone, monkeypatch: pytest.MonkeyPatch, method: dict[str, Any], tmp_path: Path
):
    """Cut in the second epoch and resumed after the first, a run ends with the very tensors of one never cut."""
    monkeypatch.setattr(load, "choose_linear", lambda *_: PlainLinear)
    whole = make_run(epochs=3, directory=tmp_path / "whole", output=tmp_path / "whole.safetensors", **method)
    train(whole)
    run = make_run(epochs=3, **method)
    with pytest.raises(PowerCut):
        _train_until(run, monkeypatch, step=5)
    assert not run.output.exists()
    assert _train_until(replace(run, resume=True), monkeypatch, step=99) == 6
    assert same(load_artifact(run.output, bert), load_artifact(whole.output, bert))


def _train_until(run: Run, monkeypatch: pytest.MonkeyPatch, step: int) -> int:
    """Train, cut off after `step` steps; returns how many there were."""
    task_loss, steps = HeadObjective.task_loss, [0]

    def counted(self: HeadObjective, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        steps[0] += logits.requires_grad
        if steps[0] > step:
            raise PowerCut
        return task_loss(self, logits, labels)

    with monkeypatch.context() as patch:
        patch.setattr(HeadObjective, "task_loss", counted)
        train(run)
    return steps[0]


def test_a_finished_run_can_be_prolonged(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch):
    """One epoch, then `--resume` to two: only the second is trained."""
    train(make_run(epochs=1))
    assert _train_until(make_run(epochs=2, resume=True), monkeypatch, step=99) == 3
    assert logged(make_run(), "step")[-1] == 6
    assert len(logged(make_run(), "eval_accuracy")) == 2


def test_a_regression_starts_from_the_mean_of_its_targets(make_run: MakeRun, bert: Backbone):
    """With hardly any learning the head's bias is still there."""
    run = make_run("regression", "houlsby", epochs=1, learning_rate=1e-6)
    train(run)
    targets = [example.label for example in read_examples(run.data.train, ["text"], "label")]
    bias = load_artifact(run.output, bert).tensors["head.bias"]
    assert bias.item() == pytest.approx(sum(targets) / len(targets), abs=1e-4)


def test_bfloat16_training_is_proved_in_float32(make_run: MakeRun, bert: Backbone):
    """The backbone trains in bfloat16; tensors, metrics and golden examples of the artifact are those of float32."""
    run = make_run(dtype="bfloat16", epochs=1)
    manifest = train(run).manifest
    artifact = proved(run, bert)
    assert manifest.training.hyperparameters["dtype"] == "bfloat16"
    assert {tensor.dtype for tensor in artifact.tensors.values()} == {torch.float32}
    half = load_backbone(bert.name, dtype="bfloat16")
    assert check_golden(half, load_artifact(run.output, half)) == []


def test_int8_training_is_measured_in_int8(make_run: MakeRun, bert: Backbone, bert_int8: Backbone):
    """The metrics are those of the forward that will serve; the golden examples are in float32 and hold in int8 too."""
    run = make_run("regression", "lora", dtype="int8", epochs=1)
    manifest = train(run).manifest
    assert (manifest.training.hyperparameters["dtype"], manifest.proved) == ("int8", ("float32", "int8"))
    examples = read_examples(run.data.validation, ["text"], "label")
    exact, served = (evaluate(model, load_artifact(run.output, model), examples) for model in (bert, bert_int8))
    assert manifest.training.metrics == pytest.approx(served)
    assert served["mse"] != pytest.approx(exact["mse"], rel=1e-6)
    proved(run, bert)


def test_texts_longer_than_the_window_train_on_modernbert(make_run: MakeRun, modernbert: Backbone):
    """An artifact whose answers a server reproduces, with the pooling of the configuration."""
    run = make_run(preset="unipelt-apl", backbone=modernbert.name, epochs=1)
    train(run)
    manifest = proved(run, modernbert).manifest
    assert (manifest.backbone.family, manifest.head.pooling, manifest.head.hidden) == ("modernbert", "first", True)


@pytest.mark.parametrize(
    ("family", "preset"),
    [
        ("distilbert", "unipelt-apl"),
        ("electra", "compacter"),
        ("mpnet", "unipelt-apl"),
        ("deberta", "unipelt-apl"),
        ("deberta_v2", "lora"),
        ("nomic_bert", "unipelt-apl"),
        # Their forward pass is that of RoBERTa, on which the next test trains.
        pytest.param("xlm_roberta", "lora", marks=pytest.mark.slow),
        pytest.param("camembert", "bitfit", marks=pytest.mark.slow),
    ],
)
def test_relatives_train(make_run: MakeRun, family: str, preset: str, request: pytest.FixtureRequest):
    """An artifact whose answers a server reproduces, with a head that needs no pooler."""
    backbone: Backbone = request.getfixturevalue(family)
    run = make_run(preset=preset, backbone=backbone.name, epochs=1)
    train(run)
    manifest = proved(run, backbone).manifest
    assert (manifest.backbone.family, manifest.head.pooling) == (backbone.config.family, "first")


def test_pairs_train_on_roberta(make_run: MakeRun, roberta: Backbone, tmp_path: Path):
    """Two text columns make a pair task, here on the other family."""
    words = ("good", "bad")
    rows = [{"one": one, "two": two, "same": str(one == two)} for one in words for two in words]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows * 8))
    run = make_run(backbone=roberta.name)
    train(replace(run, data=Data(path, path, ("one", "two"), "same")))
    manifest = proved(run, roberta).manifest
    assert (manifest.task.inputs, manifest.task.labels) == ("pair", ("False", "True"))
    assert {type(golden.input) for golden in manifest.golden} == {tuple}


def test_a_diverged_run_says_so(make_run: MakeRun):
    """A learning rate that makes the logits infinite ends in one sentence and no artifact."""
    run = make_run("regression", "lora", learning_rate=1e30)
    with pytest.raises(TrainingError, match=r"training diverged at learning rate 1e\+30; try a lower one"):
        train(run)
    assert not run.output.exists()


def test_a_failed_run_leaves_the_old_artifact(make_run: MakeRun):
    """An output that is there already is replaced by a whole one or not at all."""
    run = make_run("regression", "lora", learning_rate=1e30)
    run.output.write_bytes(b"old")
    with pytest.raises(TrainingError):
        train(run)
    assert [path.name for path in run.output.parent.glob("*.safetensors*")] == ["toy.safetensors"]
    assert run.output.read_bytes() == b"old"


def test_an_adapter_learns_on_the_real_backbone(make_run: MakeRun, minilm: Backbone, tmp_path: Path):
    """Two topics, 300 rows, one epoch on MiniLM: far beyond the majority class on sentences not seen in training."""
    train_file, validation = _topics(tmp_path, "train", 300), _topics(tmp_path, "validation", 54)
    run = make_run(backbone="minilm", epochs=1)
    manifest = train(replace(run, data=replace(run.data, train=train_file, validation=validation))).manifest
    assert manifest.training.metrics["accuracy"] > 0.9
    assert manifest.training.metrics["matthews"] > 0.8
    proved(run, minilm)


_TOPICS = {
    "sport": ("the {} scored a late goal", "our {} won the league match", "fans cheered for the {} in the stadium"),
    "cooking": ("simmer the {} with garlic", "bake the {} until it is golden", "chop the {} and fry it with onions"),
}
_WORDS = {
    ("sport", "train"): ("striker", "team", "captain", "club"),
    ("sport", "validation"): ("goalkeeper", "coach", "defender"),
    ("cooking", "train"): ("bread", "soup", "fish", "potato"),
    ("cooking", "validation"): ("chicken", "mushroom", "pie"),
}


def _topics(directory: Path, part: str, count: int) -> Path:
    """Sentences on two topics; the two parts share no subject."""
    sentences = [
        {"text": pattern.format(word), "label": topic}
        for topic, patterns in _TOPICS.items()
        for pattern in patterns
        for word in _WORDS[topic, part]
    ]
    path = directory / f"{part}.jsonl"
    path.write_text("".join(json.dumps(sentences[i % len(sentences)]) + "\n" for i in range(count)))
    return path
