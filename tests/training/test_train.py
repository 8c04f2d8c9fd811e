"""Whole runs on a small random backbone."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.artifact.artifact import load_artifact
from peltier_adapters.golden.golden import check_golden
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_training.config.preparation import prepare, prepare_evaluation
from peltier_training.config.run import RANKING_LOSSES, Run
from peltier_training.data.data import Data
from peltier_training.data.examples import read_examples
from peltier_training.errors import TrainingError
from peltier_training.evaluate.adapters import evaluate
from peltier_training.fit.trainer import AdapterTrainer
from peltier_training.report.merging import Merging
from peltier_training.service.callbacks import CheckpointTimes
from peltier_training.train import finish, learn, train
from safetensors.torch import load_file
from transformers import TrainerControl, TrainerState

from tests.training.conftest import MIXTURE, MakeRun, Train, Trained, logged, proved, scores, write_data


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


WITH_CONSISTENCY = ("classification", "multilabel")


@pytest.mark.parametrize("task_type", [*WITH_CONSISTENCY, "regression", "ranking"])
@pytest.mark.parametrize(("preset", "overrides"), [("unipelt-apl", {}), ("adamix", MIXTURE)])
def test_a_run_writes_a_proved_artifact(trained: Train, task_type: str, preset: str, overrides: dict[str, str]):
    """Every task type ends in an artifact that proves itself and records the metrics that `evaluate` finds; the
    backbone's files stay as they were."""
    own = {key: value for key, value in overrides.items() if key != "consistency" or task_type in WITH_CONSISTENCY}
    done = trained("bert", task_type, preset, overrides=own)
    manifest = done.artifact.manifest
    assert manifest == done.manifest
    assert (manifest.task.type, manifest.preset, manifest.name) == (task_type, preset, "toy")
    assert manifest.training.metrics == pytest.approx(evaluate(done.backbone, done.artifact, done.validation).metrics)
    assert load_backbone(done.run.backbone).weights_digest() == done.backbone.weights_digest()


# Full fine-tuning learns other types of tasks in `test_learners.py`; both losses are quick with an adapter.
@pytest.mark.parametrize("preset", ["lora", pytest.param("full", marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", RANKING_LOSSES)
def test_a_ranking_learns_which_documents_fit(make_run: MakeRun, preset: str, loss: str):
    """Good documents come before the others, by both losses; chance gives a reciprocal rank of 0.52."""
    run = make_run("ranking", preset, epochs=4, learning_rate=1e-2 if preset == "lora" else 1e-3, ranking_loss=loss)
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
    assert evaluate(bert, artifact, rows.examples).metrics == pytest.approx(result.metrics)
    assert set(result.metrics) == {"f1", "precision", "recall"}
    assert result.metrics["f1"] > 0.5
    assert [one.label for one in result.report.label_scores] == ["praise", "who"]
    assert result.report.mistakes is not None


def test_the_record_says_how_it_was_made(compacter: Trained):
    """Data, numbers with the preset's learning rate, settings and versions."""
    record = compacter.manifest.training
    assert record.data["train_rows"] == 48
    assert record.data["validation"] == "classification-validation.jsonl"
    assert {
        "learning_rate": 3e-3,
        "seed": 7,
        "metric": "accuracy",
        "epochs": 2,
    }.items() <= record.hyperparameters.items()
    assert record.hyperparameters["settings"]["bottleneck"] == 8
    assert sorted(record.versions) == ["peltier", "torch", "transformers"]


def test_a_run_leaves_small_checkpoints(trained: Train, compacter: Trained):
    """They hold the adapter alone, and nothing half-written stays."""
    for run in (compacter.run, trained("t5", "classification", "lora").run):
        checkpoints = sorted(run.directory.iterdir())
        assert [path.name for path in checkpoints] == ["checkpoint-3", "checkpoint-6"]
        assert (checkpoints[0] / "model.safetensors").stat().st_size < 1.2 * run.output.stat().st_size
        files = sorted(path.name for path in run.output.parent.glob("toy*"))
        assert files == ["toy.report.html", "toy.report.json", "toy.safetensors"]


@pytest.fixture(scope="module")
def turned(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Data:
    """A regression whose validation labels say the opposite of the training labels."""
    rows = [json.loads(line) for line in (toy / "regression-validation.jsonl").read_text().splitlines()]
    turned = [row | {"label": -4 * row["label"]} for row in rows]
    data = write_data(tmp_path_factory.mktemp("turned") / "turned.jsonl", turned)
    return replace(data, train=toy / "regression-train.jsonl")


PATIENT = {"epochs": 12, "learning_rate": 1e-2, "metric": "mse", "patience": 2, "backbone_dropout": 0.0}


def test_patience_has_an_end(trained: Train, turned: Data):
    """Two epochs without a better one are the last."""
    errors = scores(trained("bert", "regression", "lora", data=turned, **PATIENT).run, "mse")
    assert len(errors) == errors.index(min(errors)) + 3 < 12


def test_patience_outlives_a_break(trained: Train, turned: Data):
    """Resumed at its end, a run does not train on."""
    done = trained("bert", "regression", "lora", data=turned, **PATIENT)
    resumed = trained("bert", "regression", "lora", data=turned, after=done, **PATIENT)
    assert scores(resumed.run, "mse") == scores(done.run, "mse")
    assert same(resumed.artifact.tensors, done.artifact.tensors)


def test_an_artifact_outlives_its_merge_report(make_run: MakeRun, bert: Backbone, monkeypatch: pytest.MonkeyPatch):
    """It is written before the routes are measured, which may fail."""
    monkeypatch.setattr(Merging, "create", lambda *_: 1 / 0)
    run = make_run(preset="adamix", epochs=1, overrides={"bottleneck": "8"})
    with pytest.raises(ZeroDivisionError):
        train(run)
    assert load_artifact(run.output, bert).manifest.preset == "adamix"


def test_the_best_epoch_is_kept(trained: Train, turned: Data):
    """Against turned validation labels learning makes things worse: an epoch before the last is exported."""
    done = trained("bert", "regression", "lora", data=turned, **PATIENT)
    errors = scores(done.run, "mse")
    assert errors[-1] > 1.01 * min(errors)
    assert done.manifest.training.metrics["mse"] == pytest.approx(min(errors), rel=1e-5)


@pytest.mark.parametrize(
    ("family", "task_type", "preset", "overrides"),
    [
        ("bert", "classification", "unipelt-apl", {}),
        ("t5", "text2text", "unipelt-apl", {"mlp": "16"}),
        pytest.param("bert", "classification", "adamix", MIXTURE, marks=pytest.mark.slow),
        pytest.param("t5", "text2text", "adamix", MIXTURE, marks=pytest.mark.slow),
    ],
)
def test_the_seed_decides_everything(make_run, trained, family, task_type, preset, overrides):
    """Initialisation, order, dropout and routes: the same seed gives the same tensors, another seed others."""
    done = trained(family, task_type, preset, overrides=overrides)
    found = []
    for seed in (0, 4):
        torch.rand(seed)  # whatever was drawn before does not matter
        run = make_run(task_type, preset, backbone=done.run.backbone, overrides=overrides, seed=seed)
        found.append(learn(prepare(run)).learner.candidate().tensors)
    assert same(found[0], done.artifact.tensors)
    assert not same(found[1], done.artifact.tensors)


class PowerCut(Exception):
    """The machine goes off."""


# A checkpoint of a mixture is read by the same code as that of a Compacter.
@pytest.mark.parametrize(
    ("family", "task_type", "preset", "overrides"),
    [
        ("bert", "classification", "compacter", {}),
        pytest.param("bert", "classification", "adamix", MIXTURE, marks=pytest.mark.slow),
        pytest.param("t5", "text2text", "adamix", MIXTURE, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("saved_at", [3, 4])
def test_resume_goes_on_as_if_never_stopped(
    make_run: MakeRun, trained: Train, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    tmp_path: Path, family: str, task_type: str, preset: str, overrides: dict[str, str], saved_at: int,
):  # fmt: skip
    """Cut in the second epoch and resumed after the first or within the second, a run ends with the very tensors of one
    never cut, those of its last epoch and those of the best one. Nothing is logged of it."""
    whole = trained(family, task_type, preset, epochs=3, overrides=overrides)
    run = make_run(task_type, preset, backbone=whole.run.backbone, epochs=3, overrides=overrides)
    with pytest.raises(PowerCut):
        _train_until(run, monkeypatch, step=5, callbacks=[SavesAt(saved_at, tmp_path / "asked")])
    assert not run.output.exists()
    assert _train_until(replace(run, resume=True), monkeypatch, step=99) == 9 - saved_at
    assert same(load_file(_last_checkpoint(run)), load_file(_last_checkpoint(whole.run)))
    assert same(load_artifact(run.output, whole.backbone).tensors, whole.artifact.tensors)
    assert caplog.messages == []


def _last_checkpoint(run: Run) -> Path:
    """The weights after the third epoch."""
    return run.directory / "checkpoint-9" / "model.safetensors"


class SavesAt(CheckpointTimes):
    """Asks for a checkpoint at one step."""

    def __init__(self, step: int, asked: Path) -> None:
        super().__init__(asked)
        self._step = step

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.global_step == self._step:
            self._asked.touch()
        super().on_step_end(args, state, control)


def _train_until(run, monkeypatch, step, callbacks=()) -> int:
    """Train, cut off after `step` steps; returns how many there were."""
    compute, steps = AdapterTrainer.training_step, [0]

    def counted(*given: Any, **named: Any) -> torch.Tensor:
        steps[0] += 1
        if steps[0] > step:
            raise PowerCut
        return compute(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(AdapterTrainer, "training_step", counted)
        finish(learn(prepare(run), callbacks))
    return steps[0]


def test_a_finished_run_can_be_prolonged(once: Trained, twice: Trained):
    """One epoch, then `--resume` to two: only the second is trained."""
    assert [line.split("  ")[0] for line in twice.err.splitlines() if line.startswith("epoch")] == ["epoch 2/2"]
    log = logged(twice.run)
    assert log[: len(logged(once.run))] == logged(once.run)
    assert log[-1]["step"] == 6
    assert len(scores(twice.run, "accuracy")) == 2


def test_a_regression_starts_from_the_mean_of_its_targets(make_run: MakeRun, bert: Backbone):
    """With hardly any learning the head's bias is still there."""
    run = make_run("regression", "houlsby", epochs=1, learning_rate=1e-6)
    train(run)
    targets = [example.label for example in read_examples(run.data.train, ["text"], "label")]
    bias = load_artifact(run.output, bert).tensors["head.bias"]
    assert bias.item() == pytest.approx(sum(targets) / len(targets), abs=1e-4)


# Precision, family, task type, preset and settings.
REDUCED = [
    ("bfloat16", "bert", "classification", "compacter", {}),
    ("bfloat16", "t5", "text2text", "compacter", {"bottleneck": "8"}),
    ("int8", "bert", "regression", "lora", {}),
    ("int8", "t5", "text2text", "compacter", {"bottleneck": "8"}),
]


@pytest.mark.parametrize(("dtype", "family", "task_type", "preset", "overrides"), REDUCED)
def test_training_in_another_precision_is_proved_in_float32_too(trained, dtype, family, task_type, preset, overrides):
    """Tensors and golden examples of the artifact are those of float32, and hold where it was trained."""
    done = trained(family, task_type, preset, dtype=dtype, epochs=1, overrides=overrides)
    assert done.manifest.training.hyperparameters["dtype"] == dtype
    assert done.artifact.manifest.proved == ("float32", "int8")[: 1 + (dtype == "int8")]
    assert {tensor.dtype for tensor in done.artifact.tensors.values()} == {torch.float32}
    reduced = load_backbone(done.run.backbone, dtype=dtype)
    assert check_golden(reduced, load_artifact(done.run.output, reduced)) == []


def test_int8_training_is_measured_in_int8(trained: Train, bert_int8: Backbone):
    """The metrics are those of the forward that will serve."""
    done = trained("bert", "regression", "lora", dtype="int8", epochs=1, overrides={})
    exact, served = (
        evaluate(model, load_artifact(done.run.output, model), done.validation).metrics
        for model in (done.backbone, bert_int8)
    )
    assert done.manifest.training.metrics == pytest.approx(served)
    assert served["mse"] != pytest.approx(exact["mse"], rel=1e-6)


@pytest.mark.parametrize(
    ("family", "preset"),
    [
        ("modernbert", "unipelt-apl"),  # its texts are longer than its window
        ("distilbert", "unipelt-apl"),
        ("electra", "compacter"),
        ("mpnet", "unipelt-apl"),
        ("deberta", "unipelt-apl"),
        ("deberta_v2", "lora"),
        ("nomic_bert", "unipelt-apl"),
        # Their forward pass is that of RoBERTa, on which the next test trains.
        pytest.param("xlm_roberta", "lora", marks=pytest.mark.slow),
        pytest.param("camembert", "bitfit", marks=pytest.mark.slow),
        # With prefixes in every attention, on biases of each block. An mT5 is a T5 v1.1.
        ("umt5", "unipelt-apl"),
        pytest.param("mt5", "unipelt-apl", marks=pytest.mark.slow),
    ],
)
def test_relatives_train(trained: Train, family: str, preset: str):
    """An artifact whose answers a server reproduces; that of an encoder has a head that needs no pooler."""
    is_t5 = family.endswith("t5")
    task_type, overrides = ("text2text", {"mlp": "16"}) if is_t5 else ("classification", {})
    done = trained(family, task_type, preset, epochs=1, overrides=overrides)
    manifest = done.artifact.manifest
    assert manifest.backbone.family == (family if is_t5 else done.backbone.config.family)
    assert is_t5 or manifest.head.pooling == "first"
    assert family != "modernbert" or manifest.head.hidden


def test_pairs_train_on_roberta(make_run: MakeRun, roberta: Backbone, tmp_path: Path):
    """Two text columns make a pair task, here on the other family."""
    words = ("good", "bad")
    rows = [{"one": one, "two": two, "same": str(one == two)} for one in words for two in words]
    data = write_data(tmp_path / "pairs.jsonl", rows * 8, ("one", "two"), "same")
    run = make_run(backbone=roberta.name, epochs=1, data=data)
    train(run)
    manifest = proved(run, roberta).manifest
    assert (manifest.task.inputs, manifest.task.labels) == ("pair", ("False", "True"))
    assert {type(golden.input) for golden in manifest.golden} == {tuple}


@pytest.mark.parametrize(
    ("family", "task_type", "rate"),
    [("bert", "regression", 1e30), ("t5", "classification", 1e39), ("t5", "text2text", 1e39)],
)
def test_a_diverged_run_leaves_the_old_artifact(make_run, family, task_type, rate, request):
    """A learning rate that makes the outputs infinite ends in one sentence; what was there stays, and nothing is added
    beside it."""
    backbone: Backbone = request.getfixturevalue(family)
    run = make_run(task_type, "lora", backbone=backbone.name, learning_rate=rate)
    run.output.write_bytes(b"old")
    with pytest.raises(TrainingError, match=rf"training diverged at learning rate {re.escape(f'{rate:g}')}; try a"):
        train(run)
    assert [path.name for path in run.output.parent.glob("toy*")] == ["toy.safetensors"]
    assert run.output.read_bytes() == b"old"


@pytest.mark.slow  # adapters of the small backbones learn in the gate
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
