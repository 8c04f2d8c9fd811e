"""Entities are scored as seqeval scores them."""

import pytest
import torch
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_training.data.examples import Example
from peltier_training.data.tag_rows import tag_text
from peltier_training.data.tags import GoldEntity, Tagged
from peltier_training.evaluate.entity_examination import judge_tags, score_tags

TASK = TaskSpec(type="token-classification", labels=("O", "B-place", "I-place"), inputs="single", max_length=8)
TEXT = "Helsinki and Jyväskylä"
WORDS = ((0, 8), (9, 12), (13, 22))


def test_scores_are_of_whole_entities():
    """Two of three are right among four that were found."""
    gold = [["B-a", "I-a", "O", "B-b"], ["O", "B-a"]]
    found = [["B-a", "I-a", "O", "B-b"], ["B-a", "B-b"]]
    assert score_tags(gold, found) == pytest.approx({"f1": 4 / 7, "precision": 2 / 4, "recall": 2 / 3})
    assert score_tags(gold, [["O"] * 4, ["O"] * 2]) == {"f1": 0.0, "precision": 0.0, "recall": 0.0}


@pytest.mark.parametrize(("max_length", "recall"), [(16, 1.0), (5, 0.5)])
def test_truncated_words_are_missed(max_length: int, recall: float, minilm: Backbone):
    """A word has the tag of its first token, and none if it was dropped."""
    entities = (GoldEntity(0, 8, "place"), GoldEntity(13, 22, "place"))
    example = Example(TEXT, Tagged(entities, WORDS), "a:1")
    task = TASK.model_copy(update={"max_length": max_length})
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
