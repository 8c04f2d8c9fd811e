"""Evaluation of the tags of words."""

import warnings
from collections.abc import Iterator, Sequence

from peltier_adapters.answers.entities import join_windows
from peltier_adapters.answers.tags import OUTSIDE
from peltier_adapters.spec.tasks import TaskSpec
from seqeval import metrics as seqeval
from torch import Tensor

from peltier_training.data.examples import Example
from peltier_training.data.tag_rows import TaggedText
from peltier_training.data.tags import tagged_entities
from peltier_training.evaluate.evaluation import Evaluation

_METRICS = {"f1": seqeval.f1_score, "precision": seqeval.precision_score, "recall": seqeval.recall_score}


def judge_tags(
    task: TaskSpec, examples: Sequence[Example], texts: Sequence[TaggedText], logits: Sequence[Tensor]
) -> Evaluation:
    """The evaluation of the logits [tokens, tags] of all windows of all texts, one after the other. A word has the tag
    of its first token; a word that was truncated has none."""
    left = iter(logits)
    found = [_find_tags(task, text, [next(left) for _ in text.rows]) for text in texts]
    return Evaluation(
        metrics=score_tags([text.tags for text in texts], found),
        inputs=[example.input for example in examples],
        gold=[tagged_entities(text.words, text.tags) for text in texts],
        found=[tagged_entities(text.words, tags) for text, tags in zip(texts, found, strict=True)],
    )


def score_tags(gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> dict[str, float]:
    """seqeval's F1, precision and recall of whole entities, over all texts together."""
    wanted, given = [list(tags) for tags in gold], [list(tags) for tags in found]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a first epoch may find nothing
        return {name: float(metric(wanted, given, zero_division=0)) for name, metric in _METRICS.items()}


def _find_tags(task: TaskSpec, text: TaggedText, logits: Sequence[Tensor]) -> list[str]:
    tags = [OUTSIDE] * len(text.words)
    tokens = join_windows(text.rows, logits)
    best = tokens.logits.argmax(-1).tolist()
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
