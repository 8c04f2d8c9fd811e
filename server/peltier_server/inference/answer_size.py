"""Bounds the size of an answer. The bound is known before the answer is computed, except for the labels that apply in a
multilabel task. Also bounds the windows of long texts in one request."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from peltier_adapters.generation import Decoding
from peltier_adapters.spec.tasks import TaskSpec
from peltier_client.errors import InvalidInput
from peltier_client.protocol import Input, Parameters
from pydantic_core import to_json

from peltier_server.catalog.published import Entry, LabelBytes
from peltier_server.context import RequestContext
from peltier_server.inference.prediction import OnePrediction

# The maximum of bytes for a float32 and the comma after it in JSON, such as -1.1754943508222875e-38.
_NUMBER_BYTES = 24
_FLOAT32_BYTES = 4
# The maximum of bytes in JSON for an integer of 8 bits, with its comma.
_INTEGER_BYTES = 4
# The bytes of a prediction, and of an answer around its predictions, that are not counted below.
_PREDICTION_BYTES = 192
_PROVENANCE_BYTES = 1024
# Two sites of a bottleneck, seven maps of LoRA (a gated `intermediate` is two), and the prefix. Each has a name and one
# value per layer.
_NUM_GATES, _GATE_BYTES = 10, 32
# An entity without its label: keys, three numbers, and the text of a token.
_ENTITY_BYTES = 128
# A term without its token and its weight: keys and its number.
_TERM_BYTES = 48
# The maximum of bytes for a character of a text, such as \u0007.
_CHAR_BYTES = 6
# What a caller can set to get fewer values.
_SMALLER = {"scores": "top_k", "tokens": "max_new_tokens", "dimensions": "number of dimensions", "terms": "top_k"}


def count_windows(inputs: Iterable[object]) -> int:
    """The rows of all inputs that are read in several rows; the others have no windows."""
    return sum(len(rows) for rows in inputs if isinstance(rows, tuple) and len(rows) > 1)


class WindowBudget:
    """The windows that all inputs of one request may have together. Belongs to the event loop."""

    def __init__(self, max_windows: int) -> None:
        self._max_windows = max_windows
        self.left = max_windows

    def take(self, num_windows: int) -> None:
        """Counts windows. Raises `InvalidInput` if they are too many, and counts none."""
        if num_windows > self.left:
            raise self.refusal(num_windows - self.left)
        self.left -= num_windows

    def give_back(self, num_windows: int) -> None:
        """Returns windows, because the server reads their inputs again."""
        self.left += num_windows

    def refusal(self, excess: int) -> InvalidInput:
        """The error of a request with at least `excess` windows too many."""
        return InvalidInput(
            f"the long texts of the request make {self._max_windows + excess} windows or more; at most "
            f"{self._max_windows} are allowed: send fewer or shorter texts, or set a smaller stride"
        )


def bytes_of_names(predictions: Sequence[OnePrediction]) -> int:
    """The JSON bytes of the labels that apply, in multilabel predictions, of entities and of spans; 0 for other
    predictions."""
    return sum(
        len(to_json(one[name]))
        for one in predictions
        if isinstance(one, dict)
        for name in ("labels", "entities", "answer")
        if name in one
    )


class AnswerForm(NamedTuple):
    """How outputs are read as predictions of a task: with the scores of the `top_k` best labels or of all, and with
    embeddings in `base64` or as numbers. If it `ranks`, an output is the score of a document."""

    task: TaskSpec
    parameters: Parameters
    top_k: int | None = None
    base64: bool = False
    ranks: bool = False


class AnswerSize(NamedTuple):
    """The maximum size of an answer.

    The prediction for an input has at most `num_values` values (scores, tokens, dimensions or terms) and
    `prediction_bytes` bytes; for vectors of tokens this is the mean over all inputs. With one value it has at most
    `least_bytes`. If all labels of a multilabel task apply, if each token of a row is an entity, or if a whole context
    is the answer, it has `names_bytes` more.
    """

    num_inputs: int
    num_values: int
    values: Literal["scores", "tokens", "entities", "spans", "dimensions", "terms", "vectors"]
    prediction_bytes: int
    least_bytes: int
    names_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """The maximum of bytes of the whole answer, without `names_bytes`."""
        return _PROVENANCE_BYTES + self.num_inputs * self.prediction_bytes

    def advice(self, left: int, *, is_alone: bool) -> str:
        """The end of an error message: changes to the request that make the answer fit into `left` bytes; empty if
        there are none. `is_alone` says that the HTTP answer has no other part."""
        # If the caller has set no value, the server has chosen one, so the caller can set a smaller one.
        helps = []
        if self.num_inputs > 1 or not is_alone:
            helps.append("send fewer inputs in a request")
        if self.values == "vectors":
            helps.append("send shorter texts")
        if self.values in _SMALLER and _PROVENANCE_BYTES + self.num_inputs * self.least_bytes <= left:
            helps.append(f"set a smaller {_SMALLER[self.values]}")
        return f": {', or '.join(helps)}" if helps else ""


@dataclass(frozen=True)
class AnswerMeasure:
    """Computes the sizes of answers of one backbone. A token has at most `token_bytes` bytes of JSON."""

    token_bytes: int
    num_layers: int

    def of_answer(
        self, entry: Entry, inputs: Sequence[Input], form: AnswerForm, decoding: Decoding | None
    ) -> AnswerSize:
        """The size of the answer of a version. Raises `InvalidInput` for more dimensions than there are."""
        num_inputs, labels, parameters = len(inputs), entry.label_bytes, form.parameters
        if entry.task.type == "span":
            return self.of_spans(inputs, parameters)
        if entry.task.type == "token-classification":
            return self.of_entities(num_inputs, labels, entry.task, parameters)
        if entry.task.type == "embedding" and form.base64:
            return self.of_base64(num_inputs, count_dimensions(entry, parameters))
        if entry.task.type == "embedding":
            return self.of_embeddings(num_inputs, count_dimensions(entry, parameters), parameters)
        if entry.task.type == "multi-vector-embedding":
            # The number of vectors is known once the texts are tokenised.
            return self.of_vectors(entry, num_inputs, 1 if form.ranks else num_inputs, form)
        if entry.task.type == "sparse-embedding":
            return self.of_terms(num_inputs, min(form.top_k or entry.num_dimensions, entry.num_dimensions), parameters)
        return (
            self.of_scores(num_inputs, labels, form) if decoding is None else self.of_text(num_inputs, labels, decoding)
        )

    def of_text(self, num_inputs: int, labels: LabelBytes, decoding: Decoding) -> AnswerSize:
        """The size of generated texts. Each may come with a label."""
        around = _PREDICTION_BYTES + labels.of_longest(1)
        num_tokens, token_bytes = decoding.max_new_tokens, self.token_bytes
        return AnswerSize(num_inputs, num_tokens, "tokens", around + num_tokens * token_bytes, around + token_bytes)

    def of_entities(self, num_inputs: int, labels: LabelBytes, task: TaskSpec, parameters: Parameters) -> AnswerSize:
        """The size of entities. `AnswerBudget.take_names` counts them when they are known."""
        around = _PREDICTION_BYTES + self._of_gates(parameters)
        one = _ENTITY_BYTES + labels.of_longest(1)
        return AnswerSize(num_inputs, 0, "entities", around, around, task.max_length * one)

    def of_spans(self, inputs: Sequence[Input], parameters: Parameters) -> AnswerSize:
        """The size of parts of contexts. `AnswerBudget.take_names` counts them when they are known."""
        around = _PREDICTION_BYTES + self._of_gates(parameters)
        longest = max(len(value if isinstance(value, str) else value[-1]) for value in inputs)
        return AnswerSize(len(inputs), 0, "spans", around, around, longest * _CHAR_BYTES)

    def _of_gates(self, parameters: Parameters) -> int:
        return _NUM_GATES * (_GATE_BYTES + self.num_layers * _NUMBER_BYTES) if parameters.return_gates else 0

    def of_embeddings(self, num_inputs: int, num_dimensions: int, parameters: Parameters) -> AnswerSize:
        """The size of embeddings as numbers."""
        around, precision = _PREDICTION_BYTES + self._of_gates(parameters), parameters.precision
        value_bytes = (_NUMBER_BYTES if precision == "float32" else _INTEGER_BYTES) + 1
        num_values = math.ceil(num_dimensions / 8) if precision in ("binary", "ubinary") else num_dimensions
        every = around + num_values * value_bytes
        return AnswerSize(num_inputs, num_dimensions, "dimensions", every, around + value_bytes)

    def of_base64(self, num_inputs: int, num_dimensions: int) -> AnswerSize:
        """The size of embeddings in base64, without gates."""
        every = _PREDICTION_BYTES + _base64_bytes(num_dimensions)
        return AnswerSize(num_inputs, num_dimensions, "dimensions", every, _PREDICTION_BYTES + _base64_bytes(1))

    def of_terms(self, num_inputs: int, num_terms: int, parameters: Parameters) -> AnswerSize:
        """The size of sparse embeddings."""
        around, one = _PREDICTION_BYTES + self._of_gates(parameters), _TERM_BYTES + self.token_bytes + _NUMBER_BYTES
        return AnswerSize(num_inputs, num_terms, "terms", around + num_terms * one, around + one)

    def of_vectors(self, entry: Entry, num_inputs: int, num_vectors: int, form: AnswerForm) -> AnswerSize:
        """The size of multi-vector embeddings that have so many vectors together. If they rank documents, the answer
        has a score for each, and the vectors are those of the query, which are kept until then."""
        around = _PREDICTION_BYTES + (_NUMBER_BYTES if form.ranks else self._of_gates(form.parameters))
        one = entry.num_dimensions * (_FLOAT32_BYTES if form.ranks else _NUMBER_BYTES + 1) + 2
        every = around + math.ceil(num_vectors * one / num_inputs)
        return AnswerSize(num_inputs, 0, "vectors", every, around + one)

    def of_scores(self, num_inputs: int, labels: LabelBytes, form: AnswerForm) -> AnswerSize:
        """The size of labels with their scores. `AnswerBudget.take_names` counts the labels that apply in a multilabel
        task, when they are known."""
        task, parameters, top_k, *_ = form
        shown = len(labels) if top_k is None else min(top_k, len(labels))
        around = _PREDICTION_BYTES + (0 if task.type == "multilabel" else labels.of_longest(1))
        around += self._of_gates(parameters)
        names_bytes = labels.of_longest(len(labels)) + len(labels) if task.type == "multilabel" else 0
        every = around + labels.of_longest(shown) + shown * (_NUMBER_BYTES + 1)
        one = around + labels.of_longest(1) + _NUMBER_BYTES + 1
        return AnswerSize(num_inputs, shown, "scores", every, one, names_bytes)


def _base64_bytes(num_values: int) -> int:
    """The bytes of values in float32, four characters for each three bytes of them."""
    return 4 * math.ceil(4 * num_values / 3)


class AnswerBudget:
    """The bytes that one HTTP answer may have, and the `windows` that it may be computed from. All parts of the answer
    share them. `context` reserves the taken bytes among all answers in progress. `base64` is the form of embeddings.
    Belongs to the event loop."""

    def __init__(self, max_bytes: int, windows: WindowBudget, context: RequestContext, *, base64: bool = False) -> None:
        self._max_bytes = max_bytes
        self._context = context
        self.windows = windows
        self.base64 = base64
        self.taken_bytes = 0

    def take(self, size: AnswerSize) -> None:
        """Counts one part. Raises `InvalidInput` if it cannot fit, and `QueueFull` if a retry may succeed."""
        left = self._left
        if size.num_bytes > left:
            each = f" with {size.num_values} {size.values} each" if size.num_values else ""
            raise InvalidInput(
                f"the answer to {size.num_inputs} inputs{each} may have "
                f"{size.num_bytes} bytes, and {left} of at most {self._max_bytes} are left for it"
                + size.advice(left, is_alone=not self.taken_bytes)
            )
        self._count(size.num_bytes)

    def take_names(self, num_bytes: int, size: AnswerSize) -> None:
        """Counts `num_bytes` of labels that apply, in the part of this size. Raises the same errors as `take`."""
        left = self._left
        if num_bytes > left:
            is_alone = size.num_inputs == 1 and self.taken_bytes == size.num_bytes
            more = f"{num_bytes} more bytes of labels apply to {size.num_inputs} inputs"
            if size.values in ("entities", "spans"):
                more = f"{num_bytes} more bytes of {size.values} are in {size.num_inputs} inputs"
            raise InvalidInput(
                f"{more}, and {left} of at most {self._max_bytes} are left for the answer"
                + ("" if is_alone else ": send fewer inputs in a request")
            )
        self._count(num_bytes)

    @property
    def _left(self) -> int:
        return self._max_bytes - self.taken_bytes

    def _count(self, num_bytes: int) -> None:
        self._context.reserve(self.taken_bytes + num_bytes)
        self.taken_bytes += num_bytes

    def change(self, size: AnswerSize, other: AnswerSize) -> AnswerSize:
        """Counts a part of another size in the place of one that was taken. Raises the same errors as `take`."""
        self.taken_bytes -= size.num_bytes
        self.take(other)
        return other

    def give_back(self, size: AnswerSize, num_windows: int) -> None:
        """Returns the bytes and windows of one part, because the server computes it again."""
        self.taken_bytes -= size.num_bytes
        self.windows.give_back(num_windows)


def count_dimensions(entry: Entry, parameters: Parameters) -> int:
    """The values of each embedding that the request wants. Raises `InvalidInput` if it wants more than there are."""
    chosen = parameters.dimensions or entry.num_dimensions
    if chosen > entry.num_dimensions:
        raise InvalidInput(f"dimensions is {chosen}: the embeddings of this task have {entry.num_dimensions} values")
    return chosen
