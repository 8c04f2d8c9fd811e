"""What is kept of requests: labels and digests of answers for feedback, vectors of inputs for drift."""

import hashlib
from collections.abc import Collection, Sequence

import numpy as np
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.text.packing import Encoded
from peltier_client.errors import InvalidInput
from peltier_client.protocol import Input
from pydantic_core import to_json

from peltier_server.inference.prediction import OnePrediction
from peltier_server.metrics.drift import VECTOR_BYTES

_HASH_DIGITS = 32
_MAX_SHOWN_LABELS = 10


def hash_input(value: Input) -> str:
    """The SHA-256 of an input as JSON, its first 32 digits."""
    return hashlib.sha256(to_json(value)).hexdigest()[:_HASH_DIGITS]


def answer_of(task: TaskSpec, prediction: OnePrediction) -> str:
    """What is kept of a prediction of a task that is judged."""
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


def vectors_of(inputs: Sequence[Sequence[Encoded]]) -> list[bytes]:
    """The vectors of inputs, each of which is the windows of a text: the mean over its tokens of a random vector of
    each token, whose numbers are 0 or 255. This is a random projection of the bag of tokens (Achlioptas 2003,
    Database-friendly random projections), rounded to bytes.

    Vectors do not tell the text, and are the same on every device and in every precision. That of a token is the first
    32 bits of its hash, by the finaliser of SplitMix64 (Steele et al. 2014).
    """
    if not inputs:
        return []
    ids = [[token for window in windows for token in window.ids] for windows in inputs]
    lengths = np.array([len(own) for own in ids])
    hashed = np.fromiter((token for own in ids for token in own), dtype="<u8")
    hashed += np.uint64(0x9E3779B97F4A7C15)
    hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashed ^= hashed >> np.uint64(31)
    bits = np.unpackbits(hashed.view(np.uint8).reshape(-1, 8)[:, : VECTOR_BYTES // 8], axis=1)  # [tokens, numbers]
    sums = np.add.reduceat(bits, np.cumsum(lengths) - lengths, axis=0, dtype=np.int64)
    return [row.tobytes() for row in np.rint(255 * sums / lengths[:, None]).astype(np.uint8)]
