"""Sorts documents by their relevance for a query."""

from collections.abc import Sequence
from typing import NamedTuple

from peltier_client.errors import InvalidInput
from peltier_client.protocol import Parameters

from peltier_server.inference.prediction import Prediction
from peltier_server.inference.predictor import Predictor
from peltier_server.inference.resolved_task import ResolvedTask


class Ranking(NamedTuple):
    """The `prediction` of a query with each document, and each document's index and score, best first."""

    prediction: Prediction
    ranked: Sequence[tuple[int, float]]


async def rank(
    predictor: Predictor, target: ResolvedTask, query: str, documents: Sequence[str], parameters: Parameters
) -> Ranking:
    """Rank `documents` by relevance. Documents with equal scores keep their order. Raises `InvalidInput` if `target` is
    not a ranking task."""
    task = target.entry.task
    if task.type != "ranking":
        name = str(target.reference)
        raise InvalidInput(f"task {name!r} is of type {task.type}; only a ranking task ranks documents")
    predictor.check_count(len(documents), "documents")
    prediction = await predictor.predict(target, [(query, document) for document in documents], parameters)
    scores = [found["score"] for found in prediction.predictions if isinstance(found, dict)]
    return Ranking(prediction, sorted(enumerate(scores), key=lambda pair: -pair[1]))
