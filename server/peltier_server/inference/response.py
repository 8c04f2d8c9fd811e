"""Builds the parts of an answer's body from the outcomes of the request's rows."""

from collections.abc import Sequence
from typing import Any

from peltier_adapters.batch.row import RowOutput
from peltier_adapters.generation.generation import Draft
from peltier_adapters.generation.text_answers import answer, text_answer
from peltier_adapters.residency.bank import Resident
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.load import Backbone
from peltier_client.protocol import (
    AnyPrediction,
    ClassificationPrediction,
    MultilabelPrediction,
    Parameters,
    RegressionPrediction,
    TextPrediction,
    Timings,
    Usage,
)

from peltier_server.inference.prediction import StreamStart
from peltier_server.queue.ticket import Outcome
from peltier_server.residency.slots import Lease


def _read_scores(task: TaskSpec, output: RowOutput, parameters: Parameters) -> AnyPrediction:
    """The prediction for the logits of a row."""
    found = answer(task, output.logits, raw_scores=parameters.raw_scores, top_k=parameters.top_k)
    gates = output.gates if parameters.return_gates else None
    if found.value is not None:
        return RegressionPrediction(value=found.value, gates=gates)
    if found.labels is not None:
        return MultilabelPrediction(labels=list(found.labels), scores=found.scores, gates=gates)
    assert found.label is not None
    assert found.score is not None
    return ClassificationPrediction(label=found.label, score=found.score, scores=found.scores, gates=gates)


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
    backbone: Backbone, task: TaskSpec, outputs: Sequence[RowOutput | Draft], parameters: Parameters
) -> list[AnyPrediction]:
    """One prediction per output, in order."""
    return [
        _read_text(backbone, task, output, parameters)
        if isinstance(output, Draft)
        else _read_scores(task, output, parameters)
        for output in outputs
    ]


def create_usage(opening: StreamStart, outputs: Sequence[RowOutput | Draft]) -> Usage:
    """The numbers of tokens of the inputs and of the generated texts, if there are any."""
    drafts = [output for output in outputs if isinstance(output, Draft)]
    return Usage(
        tokens=opening.num_tokens,
        truncated_inputs=opening.num_truncated,
        completion_tokens=sum(len(draft.ids) for draft in drafts) if drafts else None,
    )


def create_timings(lease: Lease[Resident], outcome: Outcome[Any], total_seconds: float) -> Timings:
    """The times in milliseconds."""
    seconds = (outcome.queue_seconds, lease.load_seconds, outcome.compute_seconds, total_seconds)
    queue, load, compute, total = (round(1000 * value, 3) for value in seconds)
    return Timings(queue=queue, load=load, compute=compute, total=total)
