"""How large an answer may become: known before anything of it is computed, and bounded."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from peltier_adapters.search import Decoding
from peltier_adapters.task_spec import TaskSpec
from peltier_client.errors import InvalidInput
from peltier_client.protocol import Parameters
from pydantic_core import to_json

from peltier_server.origin import Origin

# The most that JSON takes of a float32 and the comma after it, as -1.1754943508222875e-38.
_NUMBER_BYTES = 24
# Everything of a prediction, and of an answer around its predictions, besides what is counted below.
_PREDICTION_BYTES = 192
_PROVENANCE_BYTES = 1024
# Two sites of a bottleneck, four targets of LoRA, the prefix; each has a name and one value a layer.
_NUM_GATES, _GATE_BYTES = 7, 32


class LabelBytes:
    """How long a task's labels are in JSON."""

    def __init__(self, labels: Sequence[str]) -> None:
        lengths = sorted((len(to_json(label)) for label in labels), reverse=True)
        self._of_longest = array("q", accumulate(lengths, initial=0))

    def __len__(self) -> int:
        return len(self._of_longest) - 1

    def of_longest(self, count: int) -> int:
        """The bytes of so many labels together, the longest ones."""
        return self._of_longest[min(count, len(self))]


@dataclass(frozen=True)
class AnswerSize:
    """The most that an answer can be: for each input so many values, scores or tokens, in so many bytes."""

    num_inputs: int
    num_values: int
    values: Literal["scores", "tokens"]
    prediction_bytes: int

    @property
    def num_bytes(self) -> int:
        """Of all predictions, and of what stands around them."""
        return _PROVENANCE_BYTES + self.num_inputs * self.prediction_bytes


@dataclass(frozen=True)
class AnswerMeasure:
    """Measures the answers of one backbone, whose tokens have at most `token_bytes` bytes of JSON."""

    token_bytes: int
    num_layers: int

    def of_text(self, num_inputs: int, labels: LabelBytes, decoding: Decoding) -> AnswerSize:
        """Of generated texts, each of which may be read as a label."""
        text_bytes = decoding.max_new_tokens * self.token_bytes + labels.of_longest(1)
        return AnswerSize(num_inputs, decoding.max_new_tokens, "tokens", _PREDICTION_BYTES + text_bytes)

    def of_scores(self, num_inputs: int, labels: LabelBytes, task: TaskSpec, parameters: Parameters) -> AnswerSize:
        """Of labels with their scores. Of a multilabel task every label may apply, whatever `top_k` is."""
        shown = len(labels) if parameters.top_k is None else min(parameters.top_k, len(labels))
        named = len(labels) if task.type == "multilabel" else 1
        # A colon before each score, a comma after each name.
        num_bytes = _PREDICTION_BYTES + labels.of_longest(shown) + shown * (_NUMBER_BYTES + 1)
        num_bytes += labels.of_longest(named) + named
        if parameters.return_gates:
            num_bytes += _NUM_GATES * (_GATE_BYTES + self.num_layers * _NUMBER_BYTES)
        return AnswerSize(num_inputs, shown, "scores", num_bytes)


class AnswerBudget:
    """The bytes that one HTTP answer may have; all of its parts take from them. Those of `origin` reserve
    them among all answers in progress. Belongs to the event loop."""

    def __init__(self, max_bytes: int, origin: Origin) -> None:
        self._max_bytes = max_bytes
        self._origin = origin
        self.taken_bytes = 0

    def take(self, size: AnswerSize) -> None:
        """Counts one part; raises `InvalidInput` where it does not fit, `QueueFull` where it may later."""
        left = self._max_bytes - self.taken_bytes
        if size.num_bytes > left:
            # What a caller gave no number of, the server has chosen.
            smaller = "top_k" if size.values == "scores" else "max_new_tokens"
            raise InvalidInput(
                f"the answer to {size.num_inputs} inputs with {size.num_values} {size.values} each may have "
                f"{size.num_bytes} bytes, and {left} of at most {self._max_bytes} are left for it: "
                f"send fewer inputs in a request, or set a smaller {smaller}"
            )
        self._origin.reserve(self.taken_bytes + size.num_bytes)
        self.taken_bytes += size.num_bytes

    def give_back(self, size: AnswerSize) -> None:
        """Counts one part no more, because it is computed anew."""
        self.taken_bytes -= size.num_bytes
