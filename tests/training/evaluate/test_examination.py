"""An artifact's metrics by the server's own forward."""

from collections.abc import Callable

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.errors import InputError
from peltier_backbone.backbone import Backbone
from peltier_training.data.examples import Example
from peltier_training.errors import TrainingError
from peltier_training.evaluate.examination import evaluate, examine

MakeArtifact = Callable[..., bytes]


def test_predictions_keep_the_order_whatever_the_batch(bert: Backbone, make_artifact: MakeArtifact):
    """Each of 70 rows of any length, in three batches, gets what it gets alone."""
    artifact = read_artifact(make_artifact(bert, "unipelt-apl"), bert)
    examples = [Example("film " * (1 + 7 * number % 11) + "good", "positive", "d:1") for number in range(70)]
    logits = examine(bert, artifact, examples).scores
    assert logits is not None
    assert logits.shape == (70, 2)
    for number in (0, 31, 32, 69):
        alone = examine(bert, artifact, [examples[number]]).scores
        torch.testing.assert_close(logits[number], alone[0], atol=1e-5, rtol=0)


def test_metrics_compare_answers_with_labels(bert: Backbone, make_artifact: MakeArtifact):
    """Labels that are the artifact's own answers give 1, the others 0."""
    artifact = read_artifact(make_artifact(bert), bert)
    labels = artifact.manifest.task.labels
    texts = ["good", "bad", "a film", "the plot is dull", "not very good", "actor"]
    found = examine(bert, artifact, [Example(text, labels[0], "d:1") for text in texts]).found
    right = [Example(text, labels[one], "d:1") for text, one in zip(texts, found, strict=True)]
    turned = [Example(text, labels[1 - one], "d:1") for text, one in zip(texts, found, strict=True)]
    assert evaluate(bert, artifact, right)["accuracy"] == 1.0
    assert evaluate(bert, artifact, turned)["accuracy"] == 0.0


def test_data_of_another_task_are_refused(bert: Backbone, make_artifact: MakeArtifact):
    """Unknown labels with their line, and one text for a pair task."""
    artifact = read_artifact(make_artifact(bert, inputs="pair"), bert)
    with pytest.raises(TrainingError, match="d:1: label 'neutral' is not one of the task's 2 labels"):
        evaluate(bert, artifact, [Example(("a", "b"), "neutral", "d:1")])
    with pytest.raises(InputError, match="the input is one text; this task takes a pair"):
        evaluate(bert, artifact, [Example("a", "positive", "d:1")])
