"""How large an answer may become: bounded, and known before it is computed but for the labels that apply."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from peltier_adapters.generation.search import Decoding
from peltier_adapters.spec.tasks import TaskSpec
from peltier_client.errors import InvalidInput
from peltier_client.protocol import AnyPrediction, MultilabelPrediction, Parameters
from pydantic_core import to_json

from peltier_server.catalog.label_bytes import LabelBytes
from peltier_server.context import RequestContext

# The most that JSON takes of a float32 and the comma after it, as -1.1754943508222875e-38.
_NUMBER_BYTES = 24
# Everything of a prediction, and of an answer around its predictions, besides what is counted below.
_PREDICTION_BYTES = 192
_PROVENANCE_BYTES = 1024
# Two sites of a bottleneck, four targets of LoRA, the prefix; each has a name and one value a layer.
_NUM_GATES, _GATE_BYTES = 7, 32


def bytes_of_names(predictions: Sequence[AnyPrediction]) -> int:
    """What the labels that apply take, where any number of them may."""
    return sum(len(to_json(one.labels)) for one in predictions if isinstance(one, MultilabelPrediction))


@dataclass(frozen=True)
class AnswerSize:
    """The most that an answer can be: for each input so many values, scores or tokens, in so many bytes; the bytes with
    one of these values; and what all labels take besides where each of them may apply."""

    num_inputs: int
    num_values: int
    values: Literal["scores", "tokens"]
    prediction_bytes: int
    least_bytes: int
    names_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """Of all predictions, and of what stands around them."""
        return _PROVENANCE_BYTES + self.num_inputs * self.prediction_bytes

    def advice(self, left: int, *, is_alone: bool) -> str:
        """What of the answer's request makes it fit into the bytes that are left, if anything does; `is_alone` says
        that nothing else is part of it."""
        # What a caller gave no number of, the server has chosen.
        smaller = "top_k" if self.values == "scores" else "max_new_tokens"
        helps = []
        if self.num_inputs > 1 or not is_alone:
            helps.append("send fewer inputs in a request")
        if _PROVENANCE_BYTES + self.num_inputs * self.least_bytes <= left:
            helps.append(f"set a smaller {smaller}")
        return f": {', or '.join(helps)}" if helps else ""


@dataclass(frozen=True)
class AnswerMeasure:
    """Measures the answers of one backbone, whose tokens have at most `token_bytes` bytes of JSON."""

    token_bytes: int
    num_layers: int

    def of_text(self, num_inputs: int, labels: LabelBytes, decoding: Decoding) -> AnswerSize:
        """Of generated texts, each of which may be read as a label."""
        around = _PREDICTION_BYTES + labels.of_longest(1)
        num_tokens, token_bytes = decoding.max_new_tokens, self.token_bytes
        return AnswerSize(num_inputs, num_tokens, "tokens", around + num_tokens * token_bytes, around + token_bytes)

    def of_scores(self, num_inputs: int, labels: LabelBytes, task: TaskSpec, parameters: Parameters) -> AnswerSize:
        """Of labels with their scores; those that apply in a multilabel task are counted when they are known."""
        shown = len(labels) if parameters.top_k is None else min(parameters.top_k, len(labels))
        around = _PREDICTION_BYTES + (0 if task.type == "multilabel" else labels.of_longest(1))
        if parameters.return_gates:
            around += _NUM_GATES * (_GATE_BYTES + self.num_layers * _NUMBER_BYTES)
        names_bytes = labels.of_longest(len(labels)) + len(labels) if task.type == "multilabel" else 0
        every, one = (around + labels.of_longest(count) + count * (_NUMBER_BYTES + 1) for count in (shown, 1))
        return AnswerSize(num_inputs, shown, "scores", every, one, names_bytes)


class AnswerBudget:
    """The bytes that one HTTP answer may have; all of its parts take from them. Those of `context` reserve
    them among all answers in progress. Belongs to the event loop."""

    def __init__(self, max_bytes: int, context: RequestContext) -> None:
        self._max_bytes = max_bytes
        self._context = context
        self.taken_bytes = 0

    def take(self, size: AnswerSize) -> None:
        """Counts one part; raises `InvalidInput` where it does not fit, `QueueFull` where it may later."""
        left = self._left
        if size.num_bytes > left:
            raise InvalidInput(
                f"the answer to {size.num_inputs} inputs with {size.num_values} {size.values} each may have "
                f"{size.num_bytes} bytes, and {left} of at most {self._max_bytes} are left for it"
                + size.advice(left, is_alone=not self.taken_bytes)
            )
        self._count(size.num_bytes)

    def take_names(self, num_bytes: int, size: AnswerSize) -> None:
        """Counts labels that apply, in the part of this size; raises as `take` does."""
        left = self._left
        if num_bytes > left:
            is_alone = size.num_inputs == 1 and self.taken_bytes == size.num_bytes
            raise InvalidInput(
                f"{num_bytes} more bytes of labels apply to {size.num_inputs} inputs, and {left} of at most "
                f"{self._max_bytes} are left for the answer" + ("" if is_alone else ": send fewer inputs in a request")
            )
        self._count(num_bytes)

    @property
    def _left(self) -> int:
        return self._max_bytes - self.taken_bytes

    def _count(self, num_bytes: int) -> None:
        self._context.reserve(self.taken_bytes + num_bytes)
        self.taken_bytes += num_bytes

    def give_back(self, size: AnswerSize) -> None:
        """Counts one part no more, because it is computed anew."""
        self.taken_bytes -= size.num_bytes
