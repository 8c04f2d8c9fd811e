"""What is counted of answers for their drift: labels, tags, lengths of spans, and deciles of numbers."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from peltier_adapters.answers.tags import split_tag
from peltier_adapters.spec.tasks import TaskType

_NUM_BINS = 10

# A label or a tag, a length, or None for an answer without a label.
Value = str | int | None


def values_of(task_type: TaskType, prediction: Any) -> Sequence[Value]:
    """What is counted of a prediction, each with an equal share of the row: of multilabel its labels, of token
    classification the labels of its entities, of a span its length in characters, by powers of two. Nothing of vectors,
    of scores, whose scale the caller chooses, and of numbers, which `Deciles` counts."""
    match task_type:
        case "multilabel":
            return prediction["labels"] or (None,)
        case "token-classification":
            return [split_tag(entity["label"])[1] for entity in prediction["entities"]] or (None,)
        case "span":
            answer = prediction["answer"] if isinstance(prediction, dict) else prediction.answer
            return (len(answer).bit_length(),)
        case _:
            return ()


def number_of(prediction: Any) -> float | None:
    """The number that a regression predicts; None if a generated text is none."""
    value: float | None = prediction["value"] if isinstance(prediction, dict) else prediction.value
    return value


class Deciles:
    """Counts numbers by the deciles of the first `num_first` ones."""

    __slots__ = ("_edges", "_first", "_num_first")

    def __init__(self, num_first: int) -> None:
        self._num_first = num_first
        self._first: list[float] = []
        self._edges: list[float] | None = None

    def places(self, number: float) -> Sequence[int]:
        """The bins, from 0 to 9, of the numbers that can be counted now: of none before there are `num_first` numbers,
        then of all of these, and later of each."""
        if self._edges is not None:
            return (bisect_right(self._edges, number),)
        self._first.append(number)
        if len(self._first) < self._num_first:
            return ()
        numbers, self._first = self._first, []
        ordered = sorted(numbers)
        self._edges = edges = [ordered[len(ordered) * place // _NUM_BINS] for place in range(1, _NUM_BINS)]
        return [bisect_right(edges, one) for one in numbers]
