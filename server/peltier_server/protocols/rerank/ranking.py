"""Sorts documents by their relevance for a query."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from peltier_client.errors import InvalidInput, PeltierError
from peltier_client.protocol import Parameters

from peltier_server.inference.prediction import Prediction
from peltier_server.inference.prediction_request import ResolvedTask
from peltier_server.inference.predictor import Predictor

# Where an error names inputs of a prediction, each of which is here a document.
_INPUT = re.compile(r"^input(?= \d+: )|(?<= more )input(?=s?\)$)")


class RankedDocuments(NamedTuple):
    """The `prediction` of a query with each document, and each document's index and score, best first."""

    prediction: Prediction
    ranked: Sequence[tuple[int, float]]


class Asked(NamedTuple):
    """What a request asks for: `documents` in the order of their relevance for a `query`. The answer repeats the texts
    of the best `num_repeated` of them, or of all of them if it is None."""

    query: str
    documents: Sequence[str]
    parameters: Parameters
    num_repeated: int | None = 0


def check_document_length(target: ResolvedTask, max_tokens: int | None) -> None:
    """Raises `InvalidInput` if documents are to have fewer tokens than the task reads."""
    max_length = target.entry.task.max_length
    if max_tokens is not None and max_tokens < max_length:
        raise InvalidInput(
            f"max_tokens_per_doc is {max_tokens}; this task truncates only the query and its document together, to "
            f"{max_length} tokens, so it must be at least {max_length}"
        )


async def rank(predictor: Predictor, target: ResolvedTask, asked: Asked) -> RankedDocuments:
    """Rank documents by relevance. Documents with equal scores keep their order. Raises `InvalidInput` if `target` is
    not a ranking task."""
    task = target.entry.task
    if task.type != "ranking":
        name = str(target.reference)
        raise InvalidInput(f"task {name!r} is of type {task.type}; only a ranking task ranks documents")
    query, documents, parameters, num_repeated = asked
    predictor.check_count(len(documents), "documents")
    budget = predictor.open_answer(target.context)
    if num_repeated != 0:
        budget.take_texts(documents, "documents", num_repeated)
    try:
        prediction = await predictor.predict(target, [(query, document) for document in documents], parameters, budget)
    except PeltierError as error:
        raise _of_documents(error) from error
    scores = [found["score"] for found in prediction.predictions if isinstance(found, dict)]
    return RankedDocuments(prediction, sorted(enumerate(scores), key=lambda pair: -pair[1]))


def _of_documents(error: PeltierError) -> PeltierError:
    """The error in terms of documents."""
    message, *details = (_INPUT.sub("document", reason) for reason in (error.message, *error.details))
    return type(error)(message, details, retry_after=error.retry_after)
