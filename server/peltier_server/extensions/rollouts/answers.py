"""The labels and digests of answers and inputs that are kept for feedback."""

import hashlib
from collections.abc import Collection, Sequence

from peltier_adapters.spec.tasks import TaskSpec
from peltier_client.errors import InvalidInput
from peltier_client.protocol.predict import Input
from peltier_client.protocol.rollouts import JUDGED_TYPES
from pydantic_core import to_json

from peltier_server.inference.prediction import OnePrediction

_MAX_SHOWN_LABELS = 10
_HASH_DIGITS = 32
# What is kept of an answer that is neither right nor wrong. No label is empty.
UNJUDGED = ""


def hash_input(value: Input) -> str:
    """The SHA-256 of an input as JSON, its first 32 digits."""
    return hashlib.sha256(to_json(value)).hexdigest()[:_HASH_DIGITS]


def answer_of(task: TaskSpec, prediction: OnePrediction) -> str:
    """What is kept of a prediction."""
    if task.type not in JUDGED_TYPES:
        return UNJUDGED
    if not isinstance(prediction, dict):
        return prediction.label if prediction.label is not None else _digest(prediction.text)
    return _listed(prediction["labels"]) if task.type == "multilabel" else str(prediction["label"])


def right_answer(tasks: Sequence[TaskSpec], label: str | Sequence[str]) -> str:
    """What would be kept of the right answer. Raises `InvalidInput` if no version of the change can give it."""
    kind, known = tasks[0].type, {one for task in tasks for one in task.labels}
    if kind == "multilabel":
        labels = [label] if isinstance(label, str) else label
        for one in labels:
            _check(one, known)
        return _listed(labels)
    if not isinstance(label, str):
        raise InvalidInput(f"label is a list, and the answers of a {kind} task have one label")
    if not known:
        return _digest(label)
    _check(label, known)
    return label


def _check(label: str, known: Collection[str]) -> None:
    if label not in known:
        shown = ", ".join(sorted(known)[:_MAX_SHOWN_LABELS])
        more = ", …" if len(known) > _MAX_SHOWN_LABELS else ""
        raise InvalidInput(f"label {label[:80]!r} is not one of the task's labels: {shown}{more}")


def _listed(labels: Sequence[str]) -> str:
    return to_json(sorted(set(labels))).decode()


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.strip().encode()).hexdigest()}"
