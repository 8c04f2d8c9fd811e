"""The report of whole runs on small backbones."""

from collections.abc import Callable

import pytest
import torch
from peltier_adapters.artifact.artifact import Artifact, load_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec.parts import count_parameters
from peltier_backbone.backbone import Backbone
from peltier_client.protocol import TrainingReport
from peltier_training.config.run import Run
from peltier_training.data.examples import Example, read_examples
from peltier_training.data.labels import Labels
from peltier_training.evaluate.examination import evaluate, examine
from peltier_training.report.page import report_paths
from peltier_training.report.report import Report
from peltier_training.train import train
from sklearn.metrics import confusion_matrix

MakeRun = Callable[..., Run]


def reported(run: Run) -> Report:
    """What the run's JSON file says, which a server takes."""
    train(run)
    written = report_paths(run.output)[0].read_text()
    TrainingReport.model_validate_json(written)
    return Report.model_validate_json(written)


def validation(run: Run) -> list[Example]:
    return read_examples(run.data.validation, ["text"], "label")


def server_gates(backbone: Backbone, artifact: Artifact, example: Example) -> dict[str, list[float | None]]:
    """The gates that the server returns for one input."""
    row = Row(encode_input(backbone, artifact.manifest.task, example.input), Banks(backbone).add(artifact))
    gates = forward(backbone, [row], record_gates=True)[0].gates
    assert gates is not None
    return gates


def test_numbers_are_those_of_the_artifact(make_run: MakeRun, bert: Backbone):
    """Metrics, confusions, parameters and digest of a UniPELT are recomputed from the file alone."""
    run = make_run("classification", "unipelt-apl", epochs=2)
    report, artifact, examples = reported(run), load_artifact(run.output, bert), validation(run)
    gold = Labels("classification", artifact.manifest.task.labels).targets(examples)
    found = examine(bert, artifact, examples).found
    assert report.metrics == pytest.approx(evaluate(bert, artifact, examples))
    assert report.confusion is not None
    assert report.confusion.matrix == tuple(map(tuple, confusion_matrix(gold, found, labels=[0, 1]).tolist()))
    parts = artifact.manifest.parts
    assert report.parameters.total.parameters == count_parameters(parts, bert.config)
    assert sum(part.parameters for part in report.parameters.parts) == count_parameters(parts, bert.config, head=True)
    assert report.artifact is not None
    assert (report.artifact.digest, report.artifact.bytes) == (artifact.digest, run.output.stat().st_size)


def mean_of(gates: list[float | None]) -> float | None:
    """Of one layer's gates; a layer without the part has none for any row."""
    values = [gate for gate in gates if gate is not None]
    return sum(values) / len(gates) if values else None


@pytest.mark.parametrize("skip", [0, 2])
def test_gates_are_the_servers(make_run: MakeRun, bert: Backbone, skip: int):
    """Each cell of the heat map is the mean of what the server returns row by row; skipped layers have none."""
    run = make_run("regression", "unipelt-apl", epochs=1, overrides={"skip": str(skip)})
    report, artifact, examples = reported(run), load_artifact(run.output, bert), validation(run)
    rows = [server_gates(bert, artifact, example) for example in examples]
    assert report.gates is not None
    assert report.gates.rows == len(rows)
    assert {part: list(layers) for part, layers in report.gates.means.items()} == {
        part: pytest.approx([mean_of([row[part][layer] for row in rows]) for layer in range(3)], abs=1e-5)
        for part in ("prefix", "lora.query", "lora.value", "bottleneck.ffn")
    }
    assert report.gates.means["bottleneck.ffn"].count(None) == skip
    assert report.gates.means["bottleneck.ffn"][2] is not None


@pytest.mark.parametrize("task_type", ["classification", "text2text"])
def test_gates_of_t5_are_those_of_both_stacks(make_run: MakeRun, t5: Backbone, task_type: str):
    """The decoder's self-attention and FFN, and its cross-attention, are further lines of the heat map."""
    gates = reported(make_run(task_type, "unipelt-ap", backbone=t5.name, epochs=1)).gates
    assert gates is not None
    assert {part: len(layers) for part, layers in gates.means.items()} == {
        "prefix": 3, "bottleneck.ffn": 3, "prefix, decoder": 2, "prefix, cross-attention": 2,
        "bottleneck.ffn, decoder": 2,
    }  # fmt: skip
    assert all(gate is not None and 0 < gate < 1 for layers in gates.means.values() for gate in layers)


@pytest.mark.parametrize(
    ("family", "task_type", "kind"),
    [
        ("bert", "classification", "confusion"),
        ("bert", "multilabel", "label_counts"),
        ("bert", "regression", "residuals"),
        ("t5", "classification", "confusion"),
        ("t5", "regression", "residuals"),
        ("t5", "text2text", "samples"),
    ],
)
def test_every_task_type_has_its_answers(
    make_run: MakeRun, request: pytest.FixtureRequest, family: str, task_type: str, kind: str
):
    """One of the four kinds of answers, curves of loss and of the metrics, and a page."""
    run = make_run(task_type, "lora", backbone=request.getfixturevalue(family).name, epochs=2)
    report = reported(run)
    kinds = ("confusion", "label_counts", "residuals", "samples")
    assert [name for name in kinds if getattr(report, name) is not None] == [kind]
    assert len(report.curves.training["loss"]) == 6
    assert [point.epoch for point in report.curves.validation[report.metric]] == [1.0, 2.0]
    assert report.curves.best_step in (3, 6)
    assert report.resolved is not None
    assert (report.resolved.steps, report.resolved.best_step) == (6, report.curves.best_step)
    assert (report.resolved.pooling is None) == (family == "t5")
    assert (report.resolved.threads, report.resolved.device) == (torch.get_num_threads(), "cpu")
    assert (report.majority is None) == (report.mistakes is None) == (task_type == "text2text")
    assert (report.label_scores is None) == (task_type in ("regression", "text2text"))
    assert report.gates is None
    assert report.cost.memory_bytes > 2**20
    assert 0 < report.cost.training_seconds < report.cost.total_seconds
    assert report_paths(run.output)[1].read_text().startswith("<!doctype html>")


def test_a_resumed_run_reports_all_its_epochs(make_run: MakeRun):
    """Its curves begin with the first epoch; its time is what this process spent on the others."""
    train(make_run(epochs=1))
    report = reported(make_run(epochs=2, resume=True))
    assert [point.epoch for point in report.curves.validation["accuracy"]] == [1.0, 2.0]
    assert report.cost.seconds_per_epoch == pytest.approx(report.cost.training_seconds)


def test_nothing_left_to_train_is_reported(make_run: MakeRun):
    """Resumed at its end, a run has no time per epoch and is whole else."""
    run = make_run(epochs=1)
    train(run)
    report = reported(make_run(epochs=1, resume=True))
    assert report.cost.seconds_per_epoch is None
    assert report.cost.training_seconds == 0


def test_experts_are_counted_as_trained(make_run: MakeRun, bert: Backbone):
    """An AdaMix serves one bottleneck; its optimizer had all copies of the routed side, and the head."""
    report = reported(make_run("classification", "adamix", epochs=1, overrides={"bottleneck": "8", "experts": "3"}))
    served = {part.part: part.parameters for part in report.parameters.parts}
    down = bert.config.num_layers * (48 * 8 + 8)
    assert report.parameters.trained.parameters == served["bottleneck"] + 2 * down + served["head"]
    assert report.parameters.trained.percent == pytest.approx(
        100 * report.parameters.trained.parameters / bert.config.num_parameters
    )
