"""An artifact's metrics by the server's own forward."""

from collections.abc import Callable

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_training.data.examples import Example
from peltier_training.data.gold import GoldEntity, Tagged
from peltier_training.data.rows import tag_text
from peltier_training.errors import TrainingError
from peltier_training.evaluate.adapters import evaluate, judge_tags

MakeArtifact = Callable[..., bytes]
TAGGING = TaskSpec(type="token-classification", labels=("O", "B-place", "I-place"), inputs="single", max_length=8)
WORDED = "Helsinki and Jyväskylä"
WORDS = ((0, 8), (9, 12), (13, 22))


def test_predictions_keep_the_order_whatever_the_batch(bert: Backbone, make_artifact: MakeArtifact):
    """Each of 70 rows of any length, in three batches, gets what it gets alone."""
    artifact = read_artifact(make_artifact(bert, "unipelt-apl"), bert)
    examples = [Example("film " * (1 + 7 * number % 11) + "good", "positive", "d:1") for number in range(70)]
    logits = evaluate(bert, artifact, examples).scores
    assert logits.shape == (70, 2)
    for number in (0, 31, 32, 69):
        alone = evaluate(bert, artifact, [examples[number]]).scores
        torch.testing.assert_close(logits[number], alone[0], atol=1e-5, rtol=0)


def test_metrics_compare_answers_with_labels(bert: Backbone, make_artifact: MakeArtifact):
    """Labels that are the artifact's own answers give 1, the others 0."""
    artifact = read_artifact(make_artifact(bert), bert)
    labels = artifact.manifest.task.labels
    texts = ["good", "bad", "a film", "the plot is dull", "not very good", "actor"]
    found = evaluate(bert, artifact, [Example(text, labels[0], "d:1") for text in texts]).found
    right = [Example(text, labels[one], "d:1") for text, one in zip(texts, found, strict=True)]
    turned = [Example(text, labels[1 - one], "d:1") for text, one in zip(texts, found, strict=True)]
    assert evaluate(bert, artifact, right).metrics["accuracy"] == 1.0
    assert evaluate(bert, artifact, turned).metrics["accuracy"] == 0.0


def test_data_of_another_task_are_refused(bert: Backbone, make_artifact: MakeArtifact):
    """Unknown labels with their line, and one text for a pair task."""
    artifact = read_artifact(make_artifact(bert, inputs="pair"), bert)
    with pytest.raises(TrainingError, match="d:1: label 'neutral' is not one of the task's 2 labels"):
        evaluate(bert, artifact, [Example(("a", "b"), "neutral", "d:1")])
    with pytest.raises(TrainingError, match="d:1: the input is one text; this task takes a pair"):
        evaluate(bert, artifact, [Example("a", "positive", "d:1")])


@pytest.mark.parametrize(("max_length", "recall"), [(16, 1.0), (5, 0.5)])
def test_truncated_words_are_missed(max_length: int, recall: float, minilm: Backbone):
    """A word has the tag of its first token, and none if it was dropped."""
    entities = (GoldEntity(0, 8, "place"), GoldEntity(13, 22, "place"))
    example = Example(WORDED, Tagged(entities, WORDS), "a:1")
    task = TAGGING.model_copy(update={"max_length": max_length})
    text = tag_text(minilm, task, example)
    if recall < 1:
        text = tag_text(minilm, task.model_copy(update={"max_length": 4}), example)
    (row,) = text.rows
    logits = torch.zeros(len(row), 3)
    for place, word in enumerate(row.words):
        first = word not in row.words[:place]
        logits[place, 1 if word in (0, 2) and first else 0 if first else 2] = 1.0  # other tokens say something else
    judged = judge_tags(task, [example], [text], [logits])
    assert judged.metrics["recall"] == recall
    assert judged.metrics["precision"] == 1.0
    assert judged.gold == [entities]
    assert judged.found == [entities[: round(2 * recall)]]
