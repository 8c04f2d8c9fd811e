"""Reads the outputs of a request's rows as predictions: few of them at once, many in pieces that take turns with the
work of other tenants."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from peltier_adapters.answers import embeddings, terms, vectors
from peltier_adapters.answers.entities import TaggedRow, find_entities, join_windows
from peltier_adapters.answers.labels import answer, ranking_answer
from peltier_adapters.answers.spans import best_span
from peltier_adapters.batch.row import RowGates, RowOutput
from peltier_adapters.generation import Draft, text_answer
from peltier_adapters.spec.tasks import SpanSpec, TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.tokenizer import Tokenizer
from peltier_client.protocol.predict import Input, Parameters, TextPrediction
from torch import Tensor

from peltier_server.fairness.preparation import MAX_PIECE_COST, Preparation
from peltier_server.inference.answer_size import AnswerForm, bytes_of_names
from peltier_server.inference.prediction import OnePrediction, PhaseTimes
from peltier_server.inference.prediction_request import PredictionRequest
from peltier_server.inference.tokenizing import EncodedInput
from peltier_server.queue.ticket import RowsOutcome
from peltier_server.residency.tiers import Lease

# Below these limits, handing the work to a thread costs more than the work.
_ANSWERS_ON_THE_LOOP = 64
_VALUES_ON_THE_LOOP = 2500
# Reading this many values takes about as long as tokenising `MAX_PIECE_COST` characters.
_PIECE_VALUES = 5000


class WindowedOutput(NamedTuple):
    """An input, its rows, and the output of each row."""

    value: Input
    rows: EncodedInput
    outputs: Sequence[RowOutput | TaggedRow]

    @property
    def gates(self) -> RowGates | None:
        """The means of the gates of all rows, if they were recorded."""
        every = [output.gates for output in self.outputs if output.gates is not None]
        if not every:
            return None
        return {part: [_mean(layer) for layer in zip(*(own[part] for own in every), strict=True)] for part in every[0]}


# The output of one input.
AnyOutput = RowOutput | Draft | WindowedOutput


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def group_windows(
    inputs: Sequence[Input], encoded: Sequence[EncodedInput], outputs: Iterable[RowOutput | TaggedRow]
) -> list[WindowedOutput]:
    """The outputs of each input. They are in the order of the rows of all inputs."""
    rest = iter(outputs)
    return [
        WindowedOutput(value, rows, list(islice(rest, len(rows)))) for value, rows in zip(inputs, encoded, strict=True)
    ]


def _num_values(output: AnyOutput | TaggedRow) -> int:
    """The number of values that an output is read from."""
    match output:
        case RowOutput():
            return output.logits.numel()
        case TaggedRow():
            return output.tags.numel()
        case Draft():
            return len(output.ids)
        case WindowedOutput():
            return sum(map(_num_values, output.outputs))


class AnswerReader:
    """Reads outputs of one backbone. The names that apply in predictions take their bytes from the request's budget."""

    def __init__(self, backbone: Backbone, preparation: Preparation) -> None:
        self._backbone = backbone
        self._preparation = preparation

    async def read(
        self, outputs: Sequence[AnyOutput], form: AnswerForm, request: PredictionRequest
    ) -> list[OnePrediction]:
        """All predictions. Raises what `AnswerBudget.take_names` raises."""
        largest = max(map(_num_values, outputs), default=0) or 1
        if len(outputs) <= _ANSWERS_ON_THE_LOOP and len(outputs) * largest <= _VALUES_ON_THE_LOOP:
            predictions = read_answers(self._backbone, form, outputs)
            request.budget.take_names(bytes_of_names(predictions))
            return predictions
        predictions, num_outputs = [], max(1, _PIECE_VALUES // largest)
        for start in range(0, len(outputs), num_outputs):
            piece = partial(self._read, form, outputs[start : start + num_outputs])
            some, num_bytes = await self._preparation.run(request.tenant, MAX_PIECE_COST, piece)
            request.budget.take_names(num_bytes)
            predictions += some
        return predictions

    def _read(self, form: AnswerForm, outputs: Sequence[AnyOutput]) -> tuple[list[OnePrediction], int]:
        predictions = read_answers(self._backbone, form, outputs)
        return predictions, bytes_of_names(predictions)


def _read_scores(tokenizer: Tokenizer, form: AnswerForm, output: RowOutput) -> OnePrediction:
    """The prediction for the logits of a row."""
    task, parameters, top_k, *_ = form
    found: dict[str, Any]
    if task.type == "ranking":
        found = ranking_answer(output.logits, raw_scores=parameters.raw_scores)
    elif task.type == "embedding":
        found = {"embedding": _embedding_values(form, output)}
    elif task.type == "sparse-embedding":
        found = {"terms": terms.answer(terms.read(output.logits, top_k, raw=parameters.raw_scores), tokenizer)}
    elif task.type == "multi-vector-embedding":
        found = {"score": float(output.logits)} if form.ranks else {"vectors": vectors.to_lists(output.logits)}
    else:
        found = answer(task, output.logits, raw_scores=parameters.raw_scores, top_k=top_k)
    if parameters.return_gates and output.gates is not None:
        found["gates"] = output.gates
    return found


def _read_windows(task: TaskSpec, found: WindowedOutput, parameters: Parameters) -> OnePrediction:
    """The prediction for an input of a task that reads tokens."""
    answer = (_read_span if task.type == "span" else _read_entities)(task, found, parameters)
    if parameters.return_gates and (gates := found.gates) is not None:
        answer["gates"] = gates
    return answer


def _read_span(task: TaskSpec, found: WindowedOutput, parameters: Parameters) -> dict[str, Any]:
    """The part of the context that answers the question."""
    outputs = [output for output in found.outputs if isinstance(output, RowOutput)]
    windows = [(row, output.logits) for row, output in zip(found.rows, outputs, strict=True)]
    best = best_span(found.value[-1], windows, task.span or SpanSpec(), raw_scores=parameters.raw_scores)
    return best._asdict()


def _read_entities(task: TaskSpec, found: WindowedOutput, parameters: Parameters) -> dict[str, Any]:
    """The entities of a text."""
    text, rows = found.value, found.rows
    assert isinstance(text, str), "a token classification has single texts"
    tokens = join_windows(rows, [output.tags for output in found.outputs if isinstance(output, TaggedRow)])
    entities = find_entities(task.labels, tokens, parameters.aggregation)
    answer: dict[str, Any] = {
        "entities": [
            {"start": start, "end": end, "text": text[start:end], "label": label, "score": score}
            for start, end, label, score in entities
        ]
    }
    if rows[-1].truncated:
        answer["truncated_at"] = max((end for _, end in tokens.offsets), default=0)
    return answer


def _embedding(form: AnswerForm, output: RowOutput) -> Tensor:
    dimensions, raw = form.parameters.dimensions, form.parameters.raw_scores
    return embeddings.read(form.task, output.logits, dimensions, raw=raw)


def _embedding_values(form: AnswerForm, output: RowOutput) -> list[float] | list[int]:
    embedding, precision = _embedding(form, output), form.parameters.precision
    return embeddings.to_list(embedding) if precision == "float32" else embeddings.quantize(embedding, precision)


def _read_text(backbone: Backbone, task: TaskSpec, draft: Draft, parameters: Parameters) -> TextPrediction:
    """The prediction for a finished draft."""
    found = text_answer(task, backbone, draft)
    return TextPrediction(
        text=found.text,
        score=draft.search.log_prob if parameters.raw_scores else found.score,
        finish_reason=found.finish_reason,
        label=found.label,
        value=found.value,
    )


def read_answers(backbone: Backbone, form: AnswerForm, outputs: Sequence[AnyOutput]) -> list[OnePrediction]:
    """One prediction per output, in order."""
    if form.base64 and form.task.type == "embedding":
        every = (_embedding(form, output) for output in outputs if isinstance(output, RowOutput))
        return [{"embedding": embeddings.to_base64(own)} for own in every]
    return [_read_answer(backbone, form, output) for output in outputs]


def _read_answer(backbone: Backbone, form: AnswerForm, output: AnyOutput) -> OnePrediction:
    if isinstance(output, RowOutput):
        return _read_scores(backbone.tokenizer, form, output)
    if isinstance(output, Draft):
        return _read_text(backbone, form.task, output, form.parameters)
    return _read_windows(form.task, output, form.parameters)


def count_new_tokens(outputs: Sequence[AnyOutput]) -> int | None:
    """The number of tokens of the generated texts; None if there are none."""
    drafts = [output for output in outputs if isinstance(output, Draft)]
    return sum(len(draft.ids) for draft in drafts) if drafts else None


def create_timings(lease: Lease, outcome: RowsOutcome[Any], total_seconds: float) -> PhaseTimes:
    """The times of a request, to the microsecond."""
    seconds = (outcome.queue_seconds, lease.load_seconds, outcome.compute_seconds, total_seconds)
    return PhaseTimes(*[int(1e6 * value + 0.5) / 1000 for value in seconds])
