"""Evaluation of extracted answers."""

from collections.abc import Sequence

from peltier_adapters.answers.spans import best_span
from peltier_adapters.spec.tasks import SpanSpec, TaskSpec
from peltier_backbone.text.packing import Encoded
from torch import Tensor

from peltier_training.data.examples import Example
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.evaluate.span_metrics import compute_spans

Windows = Sequence[Sequence[Encoded]]


def judge_spans(task: TaskSpec, examples: Sequence[Example], windows: Windows, logits: Sequence[Tensor]) -> Evaluation:
    """The evaluation of the logits [tokens, 2] of all windows of all examples, one after the other."""
    spec, left = task.span or SpanSpec(), iter(logits)
    found = [
        best_span(example.input[1], [(row, next(left)) for row in rows], spec)
        for example, rows in zip(examples, windows, strict=True)
    ]
    gold = [tuple(span.text for span in example.label) for example in examples]
    return Evaluation(
        metrics=compute_spans([answer.answer for answer in found], gold),
        inputs=[example.input for example in examples],
        gold=gold,
        found=found,
    )
