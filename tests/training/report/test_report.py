"""The report of whole runs on small backbones."""

from typing import Any

import pytest
import torch
from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec.parts import count_parameters
from peltier_backbone.backbone import Backbone
from peltier_client.protocol.reports import TrainingReport
from peltier_training.data.examples import Example
from peltier_training.data.labels import Labels
from peltier_training.evaluate.adapters import evaluate
from peltier_training.report.answers import LabelScores
from peltier_training.report.cost import Cost, ParameterCounts
from peltier_training.report.page import render, report_paths
from peltier_training.report.report import Report
from pydantic import ValidationError

from tests.training.conftest import COMPACTER, MIXTURE, Train, Trained


def server_gates(backbone: Backbone, artifact: Artifact, example: Example) -> dict[str, list[float | None]]:
    """The gates that the server returns for one input."""
    row = Row(encode_input(backbone, artifact.manifest.task, example.input), Banks(backbone).add(artifact))
    gates = forward(backbone, [row], record_gates=True)[0].gates
    return gates


def test_numbers_are_those_of_the_artifact(trained: Train):
    """Metrics, confusions, parameters and digest of a UniPELT are recomputed from the file alone."""
    from sklearn.metrics import confusion_matrix

    done = trained("bert", "classification", "unipelt-apl", overrides={})
    report, artifact, backbone = done.report, done.artifact, done.backbone
    gold = Labels("classification", artifact.manifest.task.labels).targets(done.validation)
    found = evaluate(backbone, artifact, done.validation).found
    assert report.metrics == pytest.approx(evaluate(backbone, artifact, done.validation).metrics)
    assert report.confusion.matrix == tuple(map(tuple, confusion_matrix(gold, found, labels=[0, 1]).tolist()))
    parts = artifact.manifest.parts
    assert report.parameters.total.parameters == count_parameters(parts, backbone.config)
    counted = count_parameters(parts, backbone.config, head=True)
    assert sum(part.parameters for part in report.parameters.parts) == counted
    assert (report.artifact.digest, report.artifact.bytes) == (artifact.digest, done.run.output.stat().st_size)


def mean_of(gates: list[float | None]) -> float | None:
    """Of one layer's gates; a layer without the part has none for any row."""
    values = [gate for gate in gates if gate is not None]
    return sum(values) / len(gates) if values else None


@pytest.mark.parametrize(("skip", "options"), [(0, {"overrides": {}}), (2, {"overrides": {"skip": "2"}, "epochs": 1})])
def test_gates_are_the_servers(trained: Train, skip: int, options: dict[str, Any]):
    """Each cell of the heat map is the mean of what the server returns row by row; skipped layers have none."""
    done = trained("bert", "regression", "unipelt-apl", **options)
    rows = [server_gates(done.backbone, done.artifact, example) for example in done.validation]
    gates = done.report.gates
    assert gates.rows == len(rows)
    assert {part: list(layers) for part, layers in gates.means.items()} == {
        part: pytest.approx([mean_of([row[part][layer] for row in rows]) for layer in range(3)], abs=1e-5)
        for part in ("prefix", "lora.query", "lora.value", "bottleneck.ffn")
    }
    assert gates.means["bottleneck.ffn"].count(None) == skip
    assert gates.means["bottleneck.ffn"][2] is not None


@pytest.mark.parametrize(
    ("task_type", "preset", "epochs"), [("classification", "unipelt-ap", 1), ("text2text", "unipelt-apl", 2)]
)
def test_gates_of_t5_are_those_of_both_stacks(trained: Train, task_type: str, preset: str, epochs: int):
    """The decoder's self-attention and FFN, and its cross-attention, are further lines of the heat map."""
    gates = trained("t5", task_type, preset, epochs=epochs, overrides={"mlp": "16"}).report.gates
    attentions = ["prefix", *(("lora.query", "lora.value") if preset == "unipelt-apl" else ())]
    places = {"": 3, ", decoder": 2, ", cross-attention": 2}
    expected = {f"{part}{place}": num for part in attentions for place, num in places.items()}
    assert {part: len(layers) for part, layers in gates.means.items()} == {
        **expected, "bottleneck.ffn": 3, "bottleneck.ffn, decoder": 2
    }  # fmt: skip
    assert all(gate is not None and 0 < gate < 1 for layers in gates.means.values() for gate in layers)


@pytest.mark.parametrize(
    ("family", "task_type", "preset", "options", "kind"),
    [
        ("bert", "classification", "compacter", COMPACTER, "confusion"),
        ("bert", "multilabel", "unipelt-apl", {"overrides": {}}, "label_counts"),
        ("bert", "regression", "unipelt-apl", {"overrides": {}}, "residuals"),
        ("t5", "classification", "lora", {}, "confusion"),
        ("t5", "regression", "lora", {}, "residuals"),
        ("t5", "text2text", "lora", {"learning_rate": 1e-2, "eval_rows": 2}, "samples"),
    ],
)
def test_every_task_type_has_its_answers(trained, family, task_type, preset, options, kind):
    """One of the four kinds of answers, curves of loss and of the metrics, and a page; the JSON file has it all, and a
    server takes it."""
    done = trained(family, task_type, preset, **options)
    report, (as_json, as_html) = done.report, report_paths(done.run.output)
    kinds = ("confusion", "label_counts", "residuals", "samples")
    assert [name for name in kinds if getattr(report, name) is not None] == [kind]
    assert len(report.curves.training["loss"]) == 6
    assert [point.epoch for point in report.curves.validation[report.metric]] == [1.0, 2.0]
    assert report.curves.best_step in (3, 6)
    assert (report.resolved.steps, report.resolved.best_step) == (6, report.curves.best_step)
    assert (report.resolved.pooling is None) == (family == "t5")
    assert (report.resolved.threads, report.resolved.device) == (torch.get_num_threads(), "cpu")
    assert (report.majority is None) == (report.mistakes is None) == (task_type == "text2text")
    assert (report.label_scores is None) == (task_type in ("regression", "text2text"))
    assert (report.gates is None) == (preset != "unipelt-apl")
    assert report.cost.memory_bytes > 2**20
    assert 0 < report.cost.training_seconds < report.cost.total_seconds
    assert as_html.read_text().startswith("<!doctype html>")
    assert Report.model_validate_json(as_json.read_text()) == report
    TrainingReport.model_validate_json(as_json.read_text())


def test_a_report_is_drawn(trained: Train):
    """A plot of each curve, and two of the residuals."""
    report = trained("bert", "regression", "unipelt-apl", overrides={}).report
    curves = len(report.curves.training) + len(report.curves.validation)
    assert render(report).count('<svg role="img"') == curves + 2


def test_a_resumed_run_reports_all_its_epochs(twice: Trained):
    """Its curves begin with the first epoch; its time is what this process spent on the others."""
    report = twice.report
    assert [point.epoch for point in report.curves.validation["accuracy"]] == [1.0, 2.0]
    assert report.cost.seconds_per_epoch == pytest.approx(report.cost.training_seconds)


def test_nothing_left_to_train_is_reported(trained: Train, once: Trained):
    """Resumed at its end, a run has no time per epoch and is whole else."""
    cost = trained(epochs=1, after=once).report.cost
    assert cost.seconds_per_epoch is None
    assert cost.training_seconds == 0


def test_experts_are_counted_as_trained(trained: Train):
    """An AdaMix serves one bottleneck; its optimizer had all copies of the routed side, and the head."""
    done = trained("bert", "classification", "adamix", overrides=MIXTURE)
    parameters, config = done.report.parameters, done.backbone.config
    served = {part.part: part.parameters for part in parameters.parts}
    up = config.num_layers * (8 * 48 + 48)
    assert parameters.trained.parameters == served["bottleneck"] + up + served["head"]
    assert parameters.trained.percent == pytest.approx(100 * parameters.trained.parameters / config.num_parameters)


@pytest.mark.parametrize("kind", [Cost, ParameterCounts, LabelScores])
def test_a_misspelt_keyword_is_refused(kind):
    """Servers drop what they do not know of a report, and the training that writes it does not."""
    with pytest.raises(ValidationError, match="thread\n  Extra inputs are not permitted"):
        kind(thread=1)
