"""An adapter or a baseline is trained and measured."""

import gc
import json
import weakref
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.artifact.manifest import TrainingRecord
from peltier_adapters.batch.row import RowOutput
from peltier_adapters.errors import AdapterError
from peltier_adapters.golden import proof
from peltier_adapters.golden.golden import check_golden
from peltier_adapters.golden.proof import Candidate
from peltier_adapters.parts import init_tensors
from peltier_adapters.presets.baselines import BASELINES, find_method
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.spec.tasks import DecodingSpec, TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_training.baselines.learner import BaselineTrainer
from peltier_training.baselines.tuning import HeadTuning
from peltier_training.data.data import Data
from peltier_training.data.examples import Example
from peltier_training.delivery import export
from peltier_training.errors import TrainingError
from peltier_training.evaluate import evaluation
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.fit.trainer import History
from peltier_training.report.page import report_paths
from peltier_training.report.report import Report
from peltier_training.train import train
from torch import Generator

from tests.training.conftest import MakeRun, Train, write_data

SAID = {"preset": "intrinsic-said", "overrides": {"dimension": "300"}}

METRICS = {
    "classification": "accuracy",
    "multilabel": "f1_micro",
    "regression": "spearman",
    "token-classification": "f1",
}


# Other tests read this training too.
SHARED = ("full", "classification")


def cases(kept: Sequence[tuple[str, ...]], *axes: Sequence[str]) -> list[Any]:
    """All combinations, those that are not `kept` for the slow suite."""
    marks = {True: (), False: pytest.mark.slow}
    return [pytest.param(*case, marks=marks[case in kept]) for case in product(*axes)]


# Each method, family and task type.
ENCODERS = [
    ("bert", "full", "classification"), ("bert", "intrinsic-said", "regression"), ("roberta", "full", "multilabel"),
    ("modernbert", "intrinsic-said", "classification"), ("distilbert", "full", "classification"),
    ("bert", "full", "token-classification"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "preset", "task_type"),
    cases(ENCODERS, ["bert", "roberta", "modernbert", "distilbert"], list(BASELINES), list(METRICS)),
)
def test_encoders_are_tuned_and_nothing_is_left(trained: Train, family: str, preset: str, task_type: str):
    """Metrics of the task's type come back; no artifact, no checkpoint, and the backbone's files are as they were."""
    options = {} if (preset, task_type) == SHARED else {"epochs": 1}
    done = trained(family, task_type, preset, **options)
    assert METRICS[task_type] in done.report.metrics
    assert load_backbone(done.run.backbone).weights_digest() == done.backbone.weights_digest()
    assert not done.run.output.exists()
    assert not list(done.run.directory.glob("checkpoint-*"))
    assert done.report.reason.startswith("it changes every weight of the backbone, which all tasks of a server share")


@pytest.mark.parametrize(
    ("preset", "task_type"),
    cases(
        [("full", "classification"), ("intrinsic-said", "text2text")],
        list(BASELINES),
        ["classification", "regression", "text2text"],
    ),
)
def test_t5_is_tuned(trained: Train, preset: str, task_type: str):
    """As text to text, measured as a server's backbone would answer."""
    overrides = {"dimension": "300"} if preset == "intrinsic-said" else {}
    options = {} if (preset, task_type) == SHARED else {"epochs": 1, "overrides": overrides}
    assert trained("t5", task_type, preset, **options).report.metrics["loss"] > 0


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_a_baseline_leaves_its_report(trained: Train, family: str):
    """Where an artifact's would lie: metrics, curves with the epoch that was kept, parameters, cost, and the reason."""
    done = trained(family, "classification", "full")
    as_json, as_html = report_paths(done.run.output)
    report = Report.model_validate_json(as_json.read_text())
    assert report == done.report
    assert (report.artifact, done.manifest) == (None, None)
    assert [point.epoch for point in report.curves.validation[done.run.metric]] == [1.0, 2.0]
    assert report.curves.best_step in (3, 6)
    assert report.parameters.total.percent == 100
    assert 0 < report.cost.training_seconds < report.cost.total_seconds
    assert "There is no artifact, because it changes every weight" in as_html.read_text()


def test_the_loss_decides_among_equal_epochs_of_a_baseline(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch):
    """Its metric never changes: the epoch with the lowest loss is kept."""
    values = iter([3.0, 1.0, 2.0])
    judged = BaselineTrainer.evaluation_loop

    def evaluation_loop(self: BaselineTrainer, *given: Any, **options: Any) -> Any:
        found = judged(self, *given, **options)
        return found._replace(metrics={**found.metrics, "eval_loss": next(values)})

    monkeypatch.setattr(BaselineTrainer, "evaluation_loop", evaluation_loop)
    monkeypatch.setattr(HeadTuning, "evaluate", lambda *_: Evaluation({"accuracy": 0.5}, ["a"], [0], [1]))
    result = train(make_run(preset="full", epochs=3))
    assert result.report.curves.best_step == 6
    assert [point.value for point in result.report.curves.validation["loss"]] == [3.0, 1.0, 2.0]


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_the_frozen_weights_are_gone_while_a_baseline_trains(make_run, monkeypatch, request, family):
    """What trains is one copy of the backbone, as of a method that has nothing else."""

    class Seen(Exception):
        """What was to be seen, in place of a training."""

    loaded: list[weakref.ref[object]] = []

    def load(*names: Any, **options: Any) -> Backbone:
        backbone = load_backbone(*names, **options)
        loaded.append(weakref.ref(backbone.model))
        return backbone

    def fit(*_: Any) -> History:
        gc.collect()
        assert [reference() for reference in loaded] == [None]
        raise Seen

    monkeypatch.setattr("peltier_training.baselines.learner.load_backbone", load)
    monkeypatch.setattr(BaselineTrainer, "fit", fit)
    with pytest.raises(Seen):
        train(make_run(preset="full", backbone=request.getfixturevalue(family).name))


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ({"preset": "full", "learning_rate": 1e-3, "epochs": 15}, 0.9),
        pytest.param({**SAID, "learning_rate": 3e-2, "epochs": 20}, 0.75, marks=pytest.mark.slow),
    ],
    ids=["full", "intrinsic-said"],
)
def test_training_rows_are_learned(make_run: MakeRun, toy: Path, changes: dict[str, Any], least: float):
    """All weights hold forty-eight rows nearly wholly; three hundred directions hold more than the frequent label."""
    rows = toy / "classification-train.jsonl"
    tuned = train(make_run(data=Data(rows, rows), **changes))
    assert tuned.metrics["accuracy"] > least


def test_a_regression_starts_at_its_mean(make_run: MakeRun, toy: Path, tmp_path: Path):
    """As an adapter does: far from 0 a baseline has not far to go."""
    rows = [json.loads(line) for line in (toy / "regression-train.jsonl").read_text().splitlines()]
    data = write_data(tmp_path / "far.jsonl", [row | {"label": row["label"] + 1000} for row in rows])
    tuned = train(make_run("regression", "full", epochs=1, learning_rate=1e-9, data=data))
    assert tuned.metrics["mse"] < 2  # the labels are within 2 of each other, from 0 it were a million


def test_the_best_epoch_is_kept(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch):
    """What is measured at the end are the weights of the epoch that validated best, to the bit."""
    scores, seen = iter((0.1, 0.9, 0.3, 0.9)), []

    def evaluate(self: HeadTuning, examples: Sequence[Example]) -> Evaluation:
        seen.append([parameter.detach().clone() for parameter in self.model.parameters()])
        return replace(original(self, examples), metrics={"accuracy": next(scores)})

    original = HeadTuning.evaluate
    monkeypatch.setattr(HeadTuning, "evaluate", evaluate)
    train(make_run(preset="full", epochs=3))
    assert all(torch.equal(*pair) for pair in zip(seen[3], seen[1], strict=True))
    assert not all(torch.equal(*pair) for pair in zip(seen[3], seen[2], strict=True))


def test_patience_has_an_end(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch):
    """Two epochs without a better one are the last, and the one before them is kept."""
    scores = iter((0.5, 0.9, 0.3, 0.9, 0.9))
    original = HeadTuning.evaluate
    monkeypatch.setattr(
        HeadTuning, "evaluate", lambda *given: replace(original(*given), metrics={"accuracy": next(scores)})
    )
    train(make_run(preset="full", epochs=10, patience=2))
    assert list(scores) == []  # four epochs, and the end


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"preset": "full", "overrides": {"bottleneck": "8"}}, "preset 'full' has no setting 'bottleneck'; it"),
        ({"preset": "intrinsic-said", "overrides": {"dimension": "9"}}, "setting 'dimension' is 9; it must exceed"),
        ({"preset": "full", "resume": True}, "preset 'full' leaves no checkpoints to resume from"),
    ],
    ids=["setting", "dimension", "resume"],
)
def test_what_a_baseline_cannot_do_is_one_sentence(make_run: MakeRun, changes: dict[str, Any], reason: str):
    with pytest.raises((TrainingError, AdapterError)) as refused:
        train(make_run(**changes))
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("family", "task_type"), [("bert", "classification"), ("bert", "regression"), ("t5", "classification")]
)
def test_divergence_is_no_score(make_run: MakeRun, request: pytest.FixtureRequest, family: str, task_type: str):
    """Outputs that are not finite end the run with one sentence; they are not counted as answers."""
    backbone = request.getfixturevalue(family).name
    with pytest.raises(TrainingError, match=r"^training diverged at learning rate 1e\+30; try a lower one$"):
        train(make_run(task_type, "full", backbone=backbone, epochs=1, learning_rate=1e30))


@pytest.mark.parametrize("preset", BASELINES)
def test_an_impossible_head_is_refused_before_weights_are_read(make_run, monkeypatch, preset):
    """The sentence names the value and those that can be."""
    monkeypatch.setattr(
        "peltier_training.baselines.learner.load_backbone", lambda *_, **__: pytest.fail("weights were read")
    )
    with pytest.raises(
        AdapterError, match=r"cannot be built: pooling is 'foo': .* 'pooler', 'first', 'mean', 'max' or 'tokens'"
    ):
        train(make_run(preset=preset, overrides={"pooling": "foo"}))


def test_an_unknown_method_is_answered_with_baselines_too():
    """What can be trained is a preset or a baseline."""
    with pytest.raises(
        AdapterError, match=r"preset 'fulll' is unknown, the nearest is 'full'; .*, full, intrinsic-said$"
    ):
        find_method("fulll")


def test_gates_are_recorded_for_the_report_alone(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch):
    """The final evaluation records them; metrics on other examples do without."""
    recorded: list[bool] = []

    def forward(*given: Any, record_gates: bool) -> Sequence[RowOutput]:
        recorded.append(record_gates)
        return original(*given, record_gates=record_gates)

    original = evaluation.forward
    monkeypatch.setattr(evaluation, "forward", forward)
    result = train(make_run("classification", "unipelt-apl", epochs=1))
    assert result.report.gates is not None
    assert recorded.count(True) > 0
    recorded.clear()
    assert result.learner.evaluate([Example("a good film", "positive", "d:1")]).metrics["accuracy"] in (0.0, 1.0)
    assert recorded == [False]


TASK = TaskSpec(type="classification", labels=("a", "b"), inputs="single", max_length=16)


def create_trained(bert: Backbone, preset: str) -> Candidate:
    """A fresh adapter: a Houlsby changes the backbone from the start, a LoRA does not."""
    parts = find_preset(preset).compose(find_preset(preset).settings({}, bert.config), bert.config, outputs=2)
    return Candidate("toy", preset, parts, init_tensors(parts, bert, Generator().manual_seed(0)), TASK)


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


def test_an_adapter_that_does_not_hold_where_it_was_trained_says_so(bert, bert_int8, monkeypatch, caplog):
    """It is written all the same, for servers in float32; the log says what int8 servers will say."""
    trained, judge = create_trained(bert, "houlsby"), proof.check_golden
    reason = "golden example 0: scores differ by 0.5 from the recorded ones; 0.125 is allowed in int8"
    monkeypatch.setattr(proof, "check_golden", lambda at, one: judge(at, one) if at is bert else [reason])
    data = export(bert, trained, ["good", "bad film"], TrainingRecord(), bert_int8)
    assert read_artifact(data, bert).manifest.proved == ("float32",)
    assert caplog.messages == [f"servers in int8 will refuse adapter 'toy': {reason}"]


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
