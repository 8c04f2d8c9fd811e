"""Whole runs on a small random T5."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.artifact.artifact import Artifact, load_artifact
from peltier_adapters.batch.row import Row
from peltier_adapters.golden.golden import check_golden
from peltier_adapters.inputs import encode_input
from peltier_adapters.presets.presets import PRESETS
from peltier_adapters.residency.bank import Banks
from peltier_backbone import load
from peltier_backbone.backbone import Backbone
from peltier_backbone.linear.linear import PlainLinear
from peltier_backbone.load import load_backbone
from peltier_training.config.run import Run
from peltier_training.config.task_options import TextOptions
from peltier_training.data.data import Data
from peltier_training.data.examples import read_examples
from peltier_training.errors import TrainingError
from peltier_training.evaluate.examination import evaluate
from peltier_training.evaluate.text_examination import write
from peltier_training.fit.objective import TextObjective
from peltier_training.train import train

MakeRun = Callable[..., Run]
TYPES = ("classification", "regression", "text2text")
SMALL = {
    **{name: {"bottleneck": "8"} for name in ("houlsby", "pfeiffer", "lowrank", "phm", "compacter", "compacter++")},
    **{name: {"mlp": "16"} for name in ("prefix", "unipelt-ap", "unipelt-apl")},
    **{name: {"length": "4"} for name in ("prompt-r", "prompt-t")},
    "adapterdrop": {"bottleneck": "8", "skip": "1"},
    "adamix": {"bottleneck": "8"},
}


@pytest.fixture
def make_t5_run(make_run: MakeRun, t5: Backbone) -> MakeRun:
    """`make_run` on the small T5, with settings that fit it."""

    def make(task_type: str = "classification", preset: str = "lora", **changes: Any) -> Run:
        overrides = SMALL.get(preset, {}) | changes.pop("overrides", {})
        step = {"regression_step": 1.0} if task_type == "regression" else {}
        text = TextOptions(**(step | changes.pop("text", {})))
        changes = {"backbone": t5.name} | changes
        return make_run(task_type, preset, text=text, overrides=overrides, **changes)

    return make


def proved(run: Run, backbone: Backbone) -> Artifact:
    """The run's artifact, accepted as a server accepts it."""
    artifact = load_artifact(run.output, backbone)
    assert check_golden(backbone, artifact) == []
    return artifact


def logged(run: Run, name: str) -> list[float]:
    """A metric of each epoch, as the newest checkpoint's state has it."""
    states = sorted(run.directory.glob("checkpoint-*/trainer_state.json"), key=lambda path: int(path.parent.name[11:]))
    return [entry[name] for entry in json.loads(states[-1].read_text())["log_history"] if name in entry]


@pytest.mark.parametrize("family", ["umt5", pytest.param("mt5", marks=pytest.mark.slow)])  # mT5 is a T5 v1.1
def test_relatives_train(make_t5_run: MakeRun, family: str, request: pytest.FixtureRequest):
    """With prefixes in every attention, on biases of each block: an artifact whose answers a server reproduces."""
    backbone: Backbone = request.getfixturevalue(family)
    run = make_t5_run("text2text", "unipelt-apl", backbone=backbone.name, epochs=1)
    train(run)
    assert proved(run, backbone).manifest.backbone.family == family


# A method of each way to train one: every other one keeps the promises of test_text_model.py.
TRAINED = [
    ("unipelt-apl", "text2text"), ("compacter", "classification"), ("prompt-t", "text2text"), ("adamix", "regression"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("preset", "task_type"),
    TRAINED
    + [
        pytest.param(preset, TYPES[number % 3], marks=pytest.mark.slow)
        for number, preset in enumerate(PRESETS)
        if (preset, TYPES[number % 3]) not in TRAINED
    ],
)
def test_every_method_ends_in_a_proved_artifact(make_t5_run: MakeRun, t5: Backbone, preset: str, task_type: str):
    """It proves itself, records the metrics that `evaluate` finds, and the backbone stays as it was."""
    run = make_t5_run(task_type, preset, epochs=1)
    before = t5.weights_digest()
    manifest = train(run).manifest
    artifact = proved(run, t5)
    assert (manifest.task.type, manifest.preset, manifest.backbone.family) == (task_type, preset, "t5")
    found = evaluate(t5, artifact, read_examples(run.data.validation, ["text"], "label"))
    assert manifest.training.metrics == pytest.approx(found)
    assert t5.weights_digest() == before


def test_an_adapter_learns_its_task(make_t5_run: MakeRun):
    """The label hangs on one word: the loss falls to less than half, and nearly all answers are right."""
    run = make_t5_run("classification", learning_rate=1e-2, epochs=8, batch_size=8, backbone_dropout=0.0)
    manifest = train(run).manifest
    losses = logged(run, "eval_loss")
    assert losses[-1] < losses[0] / 2
    assert manifest.training.metrics["accuracy"] >= 0.9


@pytest.mark.slow
def test_texts_are_learnt(make_t5_run: MakeRun, t5: Backbone):
    """The golden texts are what the adapter writes, two of a kind; BLEU chooses the epoch."""
    run = make_t5_run("text2text", learning_rate=1e-2, epochs=10, batch_size=8)
    manifest = train(run).manifest
    assert manifest.training.metrics["exact_match"] >= 0.7
    assert manifest.training.metrics["bleu"] == pytest.approx(max(logged(run, "eval_bleu")))
    assert manifest.training.hyperparameters["metric"] == "bleu"
    resident = Banks(t5).add(proved(run, t5))
    rows = [Row(encode_input(t5, manifest.task, golden.input), resident) for golden in manifest.golden]
    assert [answer.text for answer in write(t5, manifest.task, rows)] == [golden.text for golden in manifest.golden]


def test_the_task_says_how_it_is_asked_and_answered(make_t5_run: MakeRun):
    """Everything that the flags chose is in the artifact."""
    text = {"template": "sst2", "task_prefix": True, "targets": "words", "answer": "generate", "num_beams": 2}
    text["completion_temperature"] = 0.0
    task = train(make_t5_run(epochs=1, text=text)).manifest.task
    assert task.template == "toy sentence: {text}"
    assert task.targets == task.labels == ("negative", "positive")
    assert task.decoding is not None
    assert (task.decoding.answer, task.decoding.num_beams) == ("generate", 2)
    assert task.decoding.completion_temperature == 0


def test_defaults_are_the_papers(make_t5_run: MakeRun, t5: Backbone):
    """Digits, steps of 0.2, the longest target with its end, the plain text."""
    task = train(make_t5_run(epochs=1)).manifest.task
    assert (task.template, task.targets) == ("{text}", ("0", "1"))
    assert task.decoding is not None
    assert task.decoding.max_new_tokens == max(len(t5.tokenizer.ids(target)) for target in task.targets) + 1
    assert task.decoding.completion_temperature == 1
    numbers = train(make_t5_run("regression", epochs=1, text={"regression_step": 0.2})).manifest.task
    assert numbers.targets == ("-0.8", "-0.6", "-0.4", "-0.2", "0.0", "0.2", "0.4", "0.6", "0.8", "1.0", "1.2")


def test_few_inputs_may_choose_the_epoch(make_t5_run: MakeRun):
    """Two of them can only be right by halves; the end is measured on all."""
    run = make_t5_run("text2text", learning_rate=1e-2, eval_rows=2)
    manifest = train(run).manifest
    assert {2 * score % 1 for score in logged(run, "eval_exact_match")} == {0.0}
    assert manifest.training.data["validation_rows"] == 20


def test_the_loss_may_choose_the_epoch(make_t5_run: MakeRun):
    """The least counts."""
    run = make_t5_run("text2text", learning_rate=5e-2, epochs=3, metric="loss")
    assert train(run).manifest.training.metrics["loss"] == pytest.approx(min(logged(run, "eval_loss")), rel=1e-4)


def test_pairs_fill_a_template(make_t5_run: MakeRun, t5: Backbone, tmp_path: Path):
    """Two text columns, one text for the backbone."""
    rows = [{"one": one, "two": two, "same": str(one == two)} for one in ("good", "bad") for two in ("good", "bad")]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows * 4))
    run = replace(make_t5_run(preset="houlsby", epochs=1), data=Data(path, path, ("one", "two"), "same"))
    train(run)
    task = proved(run, t5).manifest.task
    assert task.render("good", "bad") == ("sentence1: good sentence2: bad",)


@pytest.mark.parametrize("preset", ["unipelt-apl", pytest.param("adamix", marks=pytest.mark.slow)])
def test_the_seed_decides_everything(make_t5_run: MakeRun, t5: Backbone, monkeypatch: pytest.MonkeyPatch, preset: str):
    """Initialisation, order, dropout and routes: the same seed gives the same tensors, another seed others."""
    monkeypatch.setattr(load, "choose_linear", lambda *_: PlainLinear)  # the choice by time may differ from run to run
    found = []
    for seed in (3, 3, 4):
        run = make_t5_run("text2text", preset, seed=seed, epochs=1)
        train(run)
        found.append(load_artifact(run.output, t5).tensors)
    assert all(torch.equal(tensor, found[1][name]) for name, tensor in found[0].items())
    assert not all(torch.equal(tensor, found[2][name]) for name, tensor in found[0].items())


class PowerCut(Exception):
    """The machine goes off."""


@pytest.mark.slow
def test_resume_goes_on_as_if_never_stopped(
    make_t5_run: MakeRun, t5: Backbone, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Cut in the second epoch and resumed after the first, a run ends with the very tensors of one never cut."""
    monkeypatch.setattr(load, "choose_linear", lambda *_: PlainLinear)
    whole = make_t5_run("text2text", "adamix", directory=tmp_path / "whole", output=tmp_path / "whole.safetensors")
    train(whole)
    run = make_t5_run("text2text", "adamix")
    original, steps = TextObjective.task_loss, iter(range(99))

    def cut(*given: Any) -> torch.Tensor:
        if next(steps) == 4:
            raise PowerCut
        return original(*given)

    monkeypatch.setattr(TextObjective, "task_loss", cut)
    with pytest.raises(PowerCut):
        train(run)
    monkeypatch.setattr(TextObjective, "task_loss", original)
    assert not run.output.exists()
    train(replace(run, resume=True))
    one, other = (load_artifact(path, t5).tensors for path in (run.output, whole.output))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("task_type", ["classification", "text2text"])
def test_a_diverged_run_says_so(make_t5_run: MakeRun, task_type: str):
    """A learning rate that makes the tensors infinite ends in one sentence and no artifact."""
    run = make_t5_run(task_type, "lora", learning_rate=1e39)
    with pytest.raises(TrainingError, match=r"training diverged at learning rate 1e\+39; try a lower one"):
        train(run)
    assert not run.output.exists()


def test_bfloat16_training_is_proved_in_float32(make_t5_run: MakeRun, t5: Backbone):
    """The backbone trains in bfloat16; metrics and golden examples of the artifact are those of float32."""
    run = make_t5_run("text2text", "compacter", dtype="bfloat16", epochs=1)
    train(run)
    artifact = proved(run, t5)
    assert {tensor.dtype for tensor in artifact.tensors.values()} == {torch.float32}
    half = load_backbone(t5.name, dtype="bfloat16")
    assert check_golden(half, load_artifact(run.output, half)) == []


def test_int8_training_is_proved_in_int8_too(make_t5_run: MakeRun, t5: Backbone, t5_int8: Backbone):
    """The backbone trains and generates in int8; the golden examples are in float32 and hold in int8."""
    run = make_t5_run("text2text", "compacter", dtype="int8", epochs=1)
    train(run)
    assert proved(run, t5).manifest.proved == ("float32", "int8")
    assert check_golden(t5_int8, load_artifact(run.output, t5_int8)) == []


def test_a_run_leaves_small_checkpoints_and_curves(make_t5_run: MakeRun):
    """Checkpoints hold the adapter alone, TensorBoard has its events."""
    run = make_t5_run()
    train(run)
    checkpoints = sorted(run.directory.glob("checkpoint-*"))
    assert [path.name for path in checkpoints] == ["checkpoint-3", "checkpoint-6"]
    assert (checkpoints[0] / "model.safetensors").stat().st_size < 1.2 * run.output.stat().st_size
    assert list(run.directory.rglob("events.out.tfevents.*"))
