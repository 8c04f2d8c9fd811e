"""Converts generated texts to answers."""

from dataclasses import dataclass

from peltier_backbone.backbone import Backbone

from peltier_adapters.generation import Draft, DraftFinish
from peltier_adapters.spec.tasks import TaskSpec


@dataclass(frozen=True)
class TextAnswer:
    """A generated text. In a closed task, `label` or `value` is the meaning of the text; None if the text is not a
    target of the task. `score` is the geometric mean of the probabilities of the tokens."""

    text: str
    score: float
    finish_reason: DraftFinish
    label: str | None = None
    value: float | None = None


def text_answer(task: TaskSpec, backbone: Backbone, draft: Draft) -> TextAnswer:
    """The answer of a finished draft."""
    assert draft.finish is not None, "only finished drafts answer"
    text = backbone.tokenizer.decode(draft.ids)
    label, value = None, None
    if text.strip() in task.targets:
        index = task.targets.index(text.strip())
        label = task.labels[index] if task.type == "classification" else None
        value = float(task.targets[index]) if task.type == "regression" else None
    return TextAnswer(text, draft.score, draft.finish, label, value)
