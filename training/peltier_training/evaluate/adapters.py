"""The metrics and answers of an adapter or an artifact on labelled data; `texts` has those of a T5."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from peltier_adapters.answers.entities import join_windows
from peltier_adapters.answers.spans import best_span
from peltier_adapters.answers.tags import OUTSIDE
from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.batch.row import Row
from peltier_adapters.golden.proof import Candidate
from peltier_adapters.inputs import Reader
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec.tasks import SpanSpec, TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from peltier_client.quality.metrics import match_answers
from torch import Tensor

from peltier_training.data.examples import Example, inputs_of
from peltier_training.data.gold import tagged_entities
from peltier_training.data.labels import Labels
from peltier_training.data.rows import TaggedText, context_windows, encode_examples, tag_text
from peltier_training.errors import NotFiniteError
from peltier_training.evaluate import metrics
from peltier_training.evaluate.evaluation import Evaluation, mean_gates, run_rows
from peltier_training.evaluate.metrics import Cosines, LateInteraction, Similarity, TermProducts
from peltier_training.evaluate.texts import evaluate_texts, judge_targets

Windows = Sequence[Sequence[Encoded]]
JudgeLogits = Callable[[Sequence[Tensor]], Evaluation]


def evaluate(
    backbone: Backbone, artifact: Artifact, examples: Sequence[Example], *, record_gates: bool = False
) -> Evaluation:
    """The answers and the metrics of the artifact's task type; on T5 its `loss` too."""
    resident, task = Banks(backbone).add(artifact), artifact.manifest.task
    if backbone.config.generates:
        return evaluate_texts(backbone, task, resident, examples, record_gates=record_gates)
    rows, judge = read_inputs(backbone, task, examples)
    outputs = run_rows(backbone, [Row(row, resident) for row in rows], record_gates=record_gates)
    return replace(judge([output.logits for output in outputs]), gates=mean_gates(outputs))


def evaluate_candidate(
    backbone: Backbone, adapter: Candidate, examples: Sequence[Example], *, record_gates: bool = False
) -> Evaluation:
    """The evaluation of an adapter in its served form. Raises a `NotFiniteError` if tensors are not finite."""
    if not all(bool(tensor.isfinite().all()) for tensor in adapter.tensors.values()):
        raise NotFiniteError(f"the tensors of adapter {adapter.name!r} are not finite numbers")
    candidate = adapter.unproved(backbone, inputs_of(adapter.task, examples[:1]))
    return evaluate(backbone, candidate, examples, record_gates=record_gates)


def read_inputs(backbone: Reader, task: TaskSpec, examples: Sequence[Example]) -> tuple[list[Encoded], JudgeLogits]:
    """The rows of an encoder's task, and the function that judges their logits, one tensor for each row."""
    if task.type == "span":
        windows = [context_windows(backbone, task, example) for example in examples]
        return [row for rows in windows for row in rows], partial(judge_spans, task, examples, windows)
    if task.type == "token-classification":
        texts = [tag_text(backbone, task, example) for example in examples]
        return [row for text in texts for row in text.rows], partial(judge_tags, task, examples, texts)
    rows = encode_examples(backbone, task, examples)
    if task.embeds:
        return rows, lambda outputs: judge_pairs(backbone, task, outputs, examples)
    return rows, lambda logits: judge_scores(backbone, task, torch.stack(list(logits)), examples)


def judge_scores(backbone: Reader, task: TaskSpec, scores: Tensor, examples: Sequence[Example]) -> Evaluation:
    """The evaluation of scores [rows, outputs]: an encoder's logits ([pairs, 2, outputs] of an embedding), or a T5's
    scores of its target texts."""
    if backbone.config.generates:
        return judge_targets(task, scores.argmax(-1), examples)
    if task.embeds:
        return judge_pairs(backbone, task, scores.flatten(0, 1).unbind(), examples)
    targets = Labels(task.type, task.labels).targets(examples)
    return Evaluation(
        metrics=metrics.compute(task.type, scores.numpy(), targets.numpy()),
        inputs=[example.input for example in examples],
        gold=_gold(task, targets).tolist(),
        found=_answers(task, scores).tolist(),
        scores=scores,
    )


def judge_pairs(backbone: Reader, task: TaskSpec, outputs: Sequence[Tensor], examples: Sequence[Example]) -> Evaluation:
    """The evaluation of the outputs of all texts of pairs, one after the other: the similarity of each pair with a
    score, or the rank of the second text of each other pair."""
    targets = Labels(task.type, task.labels).targets(examples).numpy()
    gold = targets if targets.ndim == 1 else np.ones(len(targets), np.int64)
    similarity, more = _similarity(backbone, task, outputs)
    vectors = torch.stack(list(outputs)).view(len(examples), 2, -1) if task.type == "embedding" else None
    return Evaluation(
        metrics=metrics.embedding(similarity, targets) | more,
        inputs=[example.input for example in examples],
        gold=gold.tolist(),
        found=metrics.pair_answers(similarity, targets).tolist(),
        scores=vectors,
    )


def _similarity(backbone: Reader, task: TaskSpec, outputs: Sequence[Tensor]) -> tuple[Similarity, dict[str, float]]:
    """How similar texts are by their outputs, and metrics of the outputs themselves."""
    if task.type == "sparse-embedding":
        products = TermProducts(outputs, backbone.config.vocab_size)
        return products, {"terms": products.num_terms}
    if task.type == "multi-vector-embedding":
        return LateInteraction(outputs), {}
    vectors = torch.stack(list(outputs))
    return Cosines(vectors.view(-1, 2, vectors.shape[-1]).numpy()), {}


def judge_spans(task: TaskSpec, examples: Sequence[Example], windows: Windows, logits: Sequence[Tensor]) -> Evaluation:
    """The evaluation of the logits [tokens, 2] of all windows of all examples, one after the other."""
    spec, left = task.span or SpanSpec(), iter(logits)
    found = [
        best_span(example.input[1], [(row, next(left)) for row in rows], spec)
        for example, rows in zip(examples, windows, strict=True)
    ]
    gold = [tuple(span.text for span in example.label) for example in examples]
    return Evaluation(
        metrics=match_answers(gold, [answer.answer for answer in found])[0],
        inputs=[example.input for example in examples],
        gold=gold,
        found=found,
    )


def judge_tags(
    task: TaskSpec, examples: Sequence[Example], texts: Sequence[TaggedText], logits: Sequence[Tensor]
) -> Evaluation:
    """The evaluation of the logits [tokens, tags] of all windows of all texts, one after the other. A word has the tag
    of its first token; a word that was truncated has none."""
    left = iter(logits)
    found = [_find_tags(task, text, [next(left) for _ in text.rows]) for text in texts]
    return Evaluation(
        metrics=metrics.tagging(found, [text.tags for text in texts]),
        inputs=[example.input for example in examples],
        gold=[tagged_entities(text.words, text.tags) for text in texts],
        found=[tagged_entities(text.words, tags) for text, tags in zip(texts, found, strict=True)],
    )


def _gold(task: TaskSpec, targets: Tensor) -> Tensor:
    """The right answers: targets without the numbers of a ranking's queries."""
    match task.type:
        case "multilabel":
            return targets.int()
        case "ranking":
            return targets[:, 0]
    return targets


def _answers(task: TaskSpec, logits: Tensor) -> Tensor:
    match task.type:
        case "classification":
            return logits.argmax(-1)
        case "multilabel":
            return (logits > 0).int()
        case "regression" | "ranking":
            return logits[:, 0]
    raise AssertionError("texts are written, not chosen")


def _find_tags(task: TaskSpec, text: TaggedText, logits: Sequence[Tensor]) -> list[str]:
    tags = [OUTSIDE] * len(text.words)
    tokens = join_windows(text.rows, logits)
    best = tokens.values.argmax(-1).tolist()
    for word, place in _first_tokens(tokens.words):
        tags[word] = task.labels[best[place]]
    return tags


def _first_tokens(words: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Each word with the place of its first token."""
    last = None
    for place, word in enumerate(words):
        if word != last:
            yield word, place
        last = word
