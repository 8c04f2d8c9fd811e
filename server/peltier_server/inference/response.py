"""Builds the parts of an answer from the outcome of the request's rows."""

from collections.abc import Sequence
from typing import Any

from peltier_adapters.answers import embeddings
from peltier_adapters.answers.entities import find_entities, join_windows
from peltier_adapters.answers.labels import answer, ranking_answer
from peltier_adapters.answers.spans import best_span
from peltier_adapters.answers.texts import text_answer
from peltier_adapters.batch.row import RowOutput
from peltier_adapters.generation.generation import Draft
from peltier_adapters.residency.bank import Resident
from peltier_adapters.spec.tasks import SpanSpec, TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_client.protocol import Parameters, TextPrediction
from torch import Tensor

from peltier_server.inference.prediction import OnePrediction, Timings
from peltier_server.inference.windowed_output import WindowedOutput
from peltier_server.queue.ticket import Outcome
from peltier_server.residency.lease import Lease

# The output of one input.
Output = RowOutput | Draft | WindowedOutput


def _read_scores(task: TaskSpec, output: RowOutput, parameters: Parameters) -> OnePrediction:
    """The prediction for the logits of a row."""
    found: dict[str, Any]
    if task.type == "ranking":
        found = ranking_answer(output.logits, raw_scores=parameters.raw_scores)
    elif task.type == "embedding":
        found = {"embedding": embeddings.to_list(_embedding(task, output, parameters))}
    else:
        found = answer(task, output.logits, raw_scores=parameters.raw_scores, top_k=parameters.top_k)
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
    windows = [(row, output.logits) for row, output in zip(found.rows, found.outputs, strict=True)]
    best = best_span(found.value[-1], windows, task.span or SpanSpec(), raw_scores=parameters.raw_scores)
    return best._asdict()


def _read_entities(task: TaskSpec, found: WindowedOutput, parameters: Parameters) -> dict[str, Any]:
    """The entities of a text."""
    text, rows = found.value, found.rows
    assert isinstance(text, str), "a token classification has single texts"
    tokens = join_windows(rows, [output.logits for output in found.outputs])
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


def _embedding(task: TaskSpec, output: RowOutput, parameters: Parameters) -> Tensor:
    return embeddings.read(task, output.logits, parameters.dimensions, raw=parameters.raw_scores)


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


def read_answers(
    backbone: Backbone, task: TaskSpec, outputs: Sequence[Output], parameters: Parameters, *, base64: bool = False
) -> list[OnePrediction]:
    """One prediction per output, in order; embeddings as numbers or in `base64`."""
    if base64 and task.type == "embedding":
        every = (_embedding(task, output, parameters) for output in outputs if isinstance(output, RowOutput))
        return [{"embedding": embeddings.to_base64(own)} for own in every]
    return [_read_answer(backbone, task, output, parameters) for output in outputs]


def _read_answer(backbone: Backbone, task: TaskSpec, output: Output, parameters: Parameters) -> OnePrediction:
    if isinstance(output, RowOutput):
        return _read_scores(task, output, parameters)
    if isinstance(output, Draft):
        return _read_text(backbone, task, output, parameters)
    return _read_windows(task, output, parameters)


def count_new_tokens(outputs: Sequence[Output]) -> int | None:
    """The number of tokens of the generated texts; None if there are none."""
    drafts = [output for output in outputs if isinstance(output, Draft)]
    return sum(len(draft.ids) for draft in drafts) if drafts else None


def create_timings(lease: Lease[Resident], outcome: Outcome[Any], total_seconds: float) -> Timings:
    """The times of a request, to the microsecond."""
    seconds = (outcome.queue_seconds, lease.load_seconds, outcome.compute_seconds, total_seconds)
    return Timings(*[int(1e6 * value + 0.5) / 1000 for value in seconds])
