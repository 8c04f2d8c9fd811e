"""Whole runs on a small random T5."""

from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.batch.row import Row
from peltier_adapters.inputs import encode_input
from peltier_adapters.presets.presets import PRESETS
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_training.config.run import Run
from peltier_training.config.task_options import TextOptions
from peltier_training.data.data import Data
from peltier_training.evaluate.adapters import evaluate
from peltier_training.evaluate.texts import write
from peltier_training.train import train

from tests.training.conftest import MIXTURE, MakeRun, Train, proved, scores, write_data

TYPES = ("classification", "regression", "text2text")
SMALL = {
    **{name: {"bottleneck": "8"} for name in ("houlsby", "pfeiffer", "lowrank", "phm", "compacter", "compacter++")},
    **{name: {"mlp": "16"} for name in ("prefix", "unipelt-ap", "unipelt-apl")},
    **{name: {"length": "4"} for name in ("prompt-r", "prompt-t")},
    "adapterdrop": {"bottleneck": "8", "skip": "1"},
    "adamix": MIXTURE,
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


# A method of each way to train one: every other one keeps the promises of models/test_model.py.
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
def test_every_method_ends_in_a_proved_artifact(trained: Train, preset: str, task_type: str):
    """It proves itself, records the metrics that `evaluate` finds, and the backbone's files stay as they were."""
    epochs = 2 if preset in ("adamix", "unipelt-apl") else 1  # those have reports that other tests read
    done = trained("t5", task_type, preset, epochs=epochs, overrides=SMALL.get(preset, {}))
    manifest = done.artifact.manifest
    assert (manifest.task.type, manifest.preset, manifest.backbone.family) == (task_type, preset, "t5")
    assert manifest.training.metrics == pytest.approx(evaluate(done.backbone, done.artifact, done.validation).metrics)
    assert load_backbone(done.run.backbone).weights_digest() == done.backbone.weights_digest()


def test_an_adapter_learns_its_task(make_t5_run: MakeRun):
    """The label hangs on one word: the loss falls to less than half, and nearly all answers are right."""
    run = make_t5_run("classification", learning_rate=1e-2, epochs=6, batch_size=8, backbone_dropout=0.0)
    manifest = train(run).manifest
    losses = scores(run, "loss")
    assert losses[-1] < losses[0] / 2
    assert manifest.training.metrics["accuracy"] >= 0.9


def test_golden_texts_are_what_the_adapter_writes(trained: Train):
    done = trained("t5", "text2text", "lora", learning_rate=1e-2, eval_rows=2)
    backbone, manifest = done.backbone, done.artifact.manifest
    resident = Banks(backbone).add(done.artifact)
    rows = [Row(encode_input(backbone, manifest.task, golden.input), resident) for golden in manifest.golden]
    written = [answer.text for answer in write(backbone, manifest.task, rows)]
    assert written == [golden.text for golden in manifest.golden]
    assert any(written)


def test_the_task_says_how_it_is_asked_and_answered(make_t5_run: MakeRun):
    """Everything that the flags chose is in the artifact."""
    text = {"template": "sst2", "task_prefix": True, "targets": "words", "answer": "generate", "num_beams": 2}
    text["completion_temperature"] = 0.0
    task = train(make_t5_run(epochs=1, text=text)).manifest.task
    assert task.template == "toy sentence: {text}"
    assert task.targets == task.labels == ("negative", "positive")
    assert (task.decoding.answer, task.decoding.num_beams) == ("generate", 2)
    assert task.decoding.completion_temperature == 0


def test_defaults_are_the_papers(trained: Train, t5: Backbone):
    """Digits, steps of 0.2, the longest target with its end, the plain text."""
    task = trained("t5", "classification", "lora").manifest.task
    assert (task.template, task.targets) == ("{text}", ("0", "1"))
    assert task.decoding.max_new_tokens == max(len(t5.tokenizer.ids(target)) for target in task.targets) + 1
    assert task.decoding.completion_temperature == 1
    numbers = trained("t5", "regression", "lora").manifest.task
    assert numbers.targets == ("-0.8", "-0.6", "-0.4", "-0.2", "0.0", "0.2", "0.4", "0.6", "0.8", "1.0", "1.2")


def test_few_inputs_may_choose_the_epoch(trained: Train):
    """Two of them can only be right by halves; the end is measured on all."""
    done = trained("t5", "text2text", "lora", learning_rate=1e-2, eval_rows=2)
    assert {2 * score % 1 for score in scores(done.run, "exact_match")} == {0.0}
    assert done.manifest.training.data["validation_rows"] == 20


def test_the_loss_may_choose_the_epoch(make_t5_run: MakeRun):
    run = make_t5_run("text2text", learning_rate=5e-2, epochs=3, metric="loss")
    assert train(run).manifest.training.metrics["loss"] == pytest.approx(min(scores(run, "loss")), rel=1e-4)


@pytest.fixture
def words(tmp_path: Path) -> Data:
    """Targets of one word."""
    rows = [{"text": f"a {word} film", "label": word} for word in ("good", "bad") * 12]
    return write_data(tmp_path / "words.jsonl", rows)


def test_the_loss_decides_where_a_metric_never_rises(make_t5_run: MakeRun, words: Data):
    """BLEU is 0 for targets of one word. The epoch with the lowest loss is kept, and a warning says so."""
    run = make_t5_run("text2text", learning_rate=1e-2, epochs=3, metric="bleu", data=words)
    report = train(run).report
    losses = scores(run, "loss")
    assert scores(run, "bleu") == [0.0] * 3
    assert report.metrics["loss"] == pytest.approx(min(losses), rel=1e-4)
    assert report.curves.best_step == 2 * (1 + losses.index(min(losses)))
    assert losses.index(min(losses)) > 0
    assert any(
        "the bleu, which chooses the epoch, was never above 0 in 3 validations" in one for one in report.warnings
    )


@pytest.mark.parametrize("metric", ["chrf", "bleu"])
def test_texts_of_one_word_are_learnt(make_t5_run: MakeRun, words: Data, metric: str):
    """With the default metric, and with one that is 0 throughout."""
    run = make_t5_run("text2text", learning_rate=1e-2, epochs=12, batch_size=8, metric=metric, data=words)
    assert train(run).metrics["exact_match"] == 1.0


def test_pairs_fill_a_template(make_t5_run: MakeRun, t5: Backbone, tmp_path: Path):
    """Two text columns, one text for the backbone."""
    rows = [{"one": one, "two": two, "same": str(one == two)} for one in ("good", "bad") for two in ("good", "bad")]
    data = write_data(tmp_path / "pairs.jsonl", rows * 4, ("one", "two"), "same")
    run = make_t5_run(preset="houlsby", epochs=1, data=data)
    train(run)
    task = proved(run, t5).manifest.task
    assert task.render("good", "bad") == ("sentence1: good sentence2: bad",)
