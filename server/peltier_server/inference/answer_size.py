"""Bounds the size of an answer by the number of its values, before they are computed, and the windows of long texts in
one request. The bytes of an answer are counted when they are written."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from peltier_adapters.spec.decoding import Decoding
from peltier_adapters.spec.tasks import TaskSpec
from peltier_client.errors import InvalidInput
from peltier_client.protocol.predict import Parameters, Precision
from pydantic_core import to_json

from peltier_server.catalog.published import Entry
from peltier_server.context import RequestContext
from peltier_server.inference.prediction import OnePrediction, too_large
from peltier_server.settings import LimitSettings

Values = Literal["scores", "tokens", "names", "dimensions", "terms", "vectors"]

# Bytes of JSON. A number in float32 has at most 24 with its comma. For a token or a term this is what is usual: the
# bytes of the whole answer are counted when they are written.
_NUMBER_BYTES = 24
_TOKEN_BYTES, _TERM_BYTES = 16.0, 96.0
_DIMENSION_BYTES: Mapping[Precision, float] = {
    "float32": _NUMBER_BYTES, "int8": 5, "uint8": 5, "binary": 5 / 8, "ubinary": 5 / 8,
}  # fmt: skip
_BASE64_BYTES = 16 / 3
# Of vectors that are kept until documents are scored.
_FLOAT32_BYTES = 4.0
# A prediction without its values, and an answer without its predictions.
_INPUT_BYTES, _ANSWER_BYTES = 192, 1024
# Two sites of a bottleneck, seven maps of LoRA (a gated `intermediate` is two), and the prefix have a gate in each
# layer.
_NUM_GATES = 10
# What a caller can set to get fewer values.
_SMALLER: Mapping[Values, str] = {
    "scores": "top_k", "tokens": "max_new_tokens", "dimensions": "number of dimensions", "terms": "top_k",
}  # fmt: skip


def count_windows(inputs: Iterable[object]) -> int:
    """The rows of all inputs that are read in several rows; the others have no windows."""
    return sum(len(rows) for rows in inputs if isinstance(rows, tuple) and len(rows) > 1)


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
    """The size of an answer: the prediction for an input has `num_values` values, each of `value_bytes`, and
    `input_bytes` besides. The vectors of tokens are a mean over all inputs, and the names of labels, entities and spans
    are counted when they are known."""

    num_inputs: int
    num_values: int
    values: Values
    value_bytes: float
    input_bytes: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole answer."""
        return _ANSWER_BYTES + math.ceil(self.num_inputs * (self.input_bytes + self.num_values * self.value_bytes))

    def refusal(self, left: int, limit: int) -> InvalidInput:
        """The error for an answer that does not fit into the `left` bytes of `limit`, with what makes it fit."""
        # If the caller has set no value, the server has chosen one, so the caller can set a smaller one.
        helps = []
        if self.num_inputs > 1 or left < limit:
            helps.append("send fewer inputs in a request")
        if self.values == "vectors":
            helps.append("send shorter texts")
        if self.values in _SMALLER and self._replace(num_values=1).num_bytes <= left:
            helps.append(f"set a smaller {_SMALLER[self.values]}")
        each = f" with {self.num_values} {self.values} each" if self.values in _SMALLER else ""
        return InvalidInput(
            f"the answer to {self.num_inputs} inputs{each} may have {self.num_bytes} bytes, and {left} of at most "
            f"{limit} are left for it{': ' if helps else ''}{', or '.join(helps)}"
        )


def measure_answer(
    entry: Entry, num_inputs: int, form: AnswerForm, decoding: Decoding | None, num_layers: int
) -> AnswerSize:
    """The size of the answer of a version. Raises `InvalidInput` for more dimensions than there are."""
    if form.task.type == "multi-vector-embedding":
        # At least one vector each: their number is known once the texts are tokenised.
        return measure_vectors(entry, num_inputs, 1 if form.ranks else num_inputs, form)
    gate_bytes = _NUM_GATES * num_layers * _NUMBER_BYTES if form.parameters.return_gates else 0
    return AnswerSize(num_inputs, *_values(entry, form, decoding), _INPUT_BYTES + gate_bytes)


def measure_vectors(entry: Entry, num_inputs: int, num_vectors: int, form: AnswerForm) -> AnswerSize:
    """The size of multi-vector embeddings that have `num_vectors` vectors together. If they rank documents, the vectors
    are those of the query, which are kept until the documents are scored."""
    num_values = math.ceil(num_vectors * entry.num_dimensions / num_inputs)
    return AnswerSize(num_inputs, num_values, "vectors", _FLOAT32_BYTES if form.ranks else _NUMBER_BYTES, _INPUT_BYTES)


def _values(entry: Entry, form: AnswerForm, decoding: Decoding | None) -> tuple[int, Values, float]:
    """The number of values of a prediction, what they are, and the bytes of each."""
    task, parameters, top_k, base64, _ = form
    if decoding is not None:
        return decoding.max_new_tokens, "tokens", _TOKEN_BYTES
    if task.reads_tokens:
        return 0, "names", 0.0
    if task.type == "embedding":
        num_bytes = _BASE64_BYTES if base64 else _DIMENSION_BYTES[parameters.precision]
        return _num_dimensions(entry, parameters), "dimensions", num_bytes
    if task.type == "sparse-embedding":
        return min(top_k or entry.num_dimensions, entry.num_dimensions), "terms", _TERM_BYTES
    num_scores = min(len(task.labels) if top_k is None else top_k, len(task.labels))
    return num_scores, "scores", _NUMBER_BYTES + 1 + entry.mean_label_bytes


def _num_dimensions(entry: Entry, parameters: Parameters) -> int:
    chosen = parameters.dimensions or entry.num_dimensions
    if chosen > entry.num_dimensions:
        raise InvalidInput(f"dimensions is {chosen}: the embeddings of this task have {entry.num_dimensions} values")
    return chosen


class AnswerBudget:
    """The bytes that one HTTP answer may have, and the windows of long texts that it may be computed from. All parts of
    the answer share them. `context` reserves the taken bytes among all answers in progress. `base64` is the form of
    embeddings. Belongs to the event loop."""

    def __init__(self, limits: LimitSettings, context: RequestContext, *, base64: bool = False) -> None:
        self._max_bytes, self._max_windows = limits.max_answer_bytes, limits.max_windows
        self._context = context
        self.windows_left = limits.max_windows
        self.base64 = base64
        self.taken_bytes = 0

    def take(self, size: AnswerSize) -> None:
        """Counts one part. Raises `InvalidInput` if it cannot fit, and `QueueFull` if a retry may succeed."""
        left = self._max_bytes - self.taken_bytes
        if size.num_bytes > left:
            raise size.refusal(left, self._max_bytes)
        self._count(size.num_bytes)

    def take_names(self, num_bytes: int) -> None:
        """Counts the names that were found for a part. Raises the same errors as `take`."""
        if num_bytes > self._max_bytes - self.taken_bytes:
            raise too_large(self._max_bytes)
        self._count(num_bytes)

    def change(self, size: AnswerSize, other: AnswerSize) -> AnswerSize:
        """Counts a part of another size in the place of one that was taken. Raises the same errors as `take`."""
        self.taken_bytes -= size.num_bytes
        self.take(other)
        return other

    def give_back(self, size: AnswerSize, num_windows: int) -> None:
        """Returns the bytes and windows of one part, because the server computes it again."""
        self.taken_bytes -= size.num_bytes
        self.windows_left += num_windows

    def take_windows(self, num_windows: int) -> None:
        """Counts windows. Raises `InvalidInput` if they are too many, and counts none."""
        if num_windows > self.windows_left:
            raise self.too_many_windows(num_windows - self.windows_left)
        self.windows_left -= num_windows

    def too_many_windows(self, excess: int) -> InvalidInput:
        """The error of a request with at least `excess` windows too many."""
        return InvalidInput(
            f"the long texts of the request make {self._max_windows + excess} windows or more; at most "
            f"{self._max_windows} are allowed: send fewer or shorter texts, or set a smaller stride"
        )

    def _count(self, num_bytes: int) -> None:
        self._context.reserve(self.taken_bytes + num_bytes)
        self.taken_bytes += num_bytes
