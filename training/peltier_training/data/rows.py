"""From examples to datasets of the Trainer: rows, or windows of long texts with the tokens of their answers or the tags
of their words."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from peltier_adapters.errors import InputError
from peltier_adapters.inputs import LongTexts, Reader, at_words, encode_input, encode_windows
from peltier_adapters.spec.parts import Parts, prompt_length
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.checkpoint.config import T5Config
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.token_places import NO_WORD, NOWHERE, Span
from torch import Tensor

from peltier_training.data.dataset import IGNORED, EncodedRows, TextRow
from peltier_training.data.examples import Example, inputs_of
from peltier_training.data.gold import GoldSpan, word_tags
from peltier_training.data.labels import Labels, number_queries
from peltier_training.data.targets import gold_texts, target_ids
from peltier_training.errors import TrainingError

_NOTHING = (0, 0)  # the first token stands for no answer
NO_TOKEN = -200  # fills the targets of a row up to the task's length


def head_rows(backbone: Reader, task: TaskSpec, examples: Sequence[Example]) -> EncodedRows:
    """Inputs and targets of a task with a head. Raises a `TrainingError` with the line of an invalid example."""
    if task.type == "span":
        return span_rows(backbone, task, examples)
    if task.type == "token-classification":
        return tag_rows(backbone, task, examples)
    targets = Labels(task.type, task.labels).targets(examples)
    rows = encode_examples(backbone, task, examples)
    if task.embeds:
        return EncodedRows(list(zip(rows[::2], rows[1::2], strict=True)), targets)
    return EncodedRows(rows, targets, number_queries(examples) if task.type == "ranking" else None)


def text_rows(backbone: Reader, task: TaskSpec, parts: Parts, examples: Sequence[Example]) -> list[TextRow]:
    """Inputs, with placeholders for soft tokens of `parts`, and target texts of a T5's task."""
    config = backbone.config
    assert isinstance(config, T5Config), "callers look at `config.generates` first"
    start, end = config.start_token_id, config.eos_token_id
    soft = (0,) * prompt_length(parts)
    rows = []
    for example, text in zip(examples, gold_texts(task, examples), strict=True):
        (encoded,), target = encode_examples(backbone, task, [example]), target_ids(backbone, task, text)
        if not target:
            raise TrainingError(f"{example.where}: label {text!r} tokenizes to nothing")
        prompted = Encoded(soft + encoded.ids, soft + encoded.types)
        rows.append(TextRow(prompted, (start, *target), (*target, end)))
    return rows


def encode_examples(backbone: Reader, task: TaskSpec, examples: Sequence[Example]) -> list[Encoded]:
    """The row of each example, or of each text of an embedding's pairs. Raises a `TrainingError` with the line of an
    invalid example."""
    rows = []
    for example in examples:
        with _named_line(example):
            rows += [encode_input(backbone, task, value) for value in inputs_of(task, [example])]
    return rows


@contextmanager
def _named_line(example: Example) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise TrainingError(f"{example.where}: {error}") from None


def context_windows(backbone: Reader, task: TaskSpec, example: Example) -> tuple[Encoded, ...]:
    """The rows of an example. Raises a `TrainingError` with its line if it is invalid."""
    with _named_line(example):
        return encode_windows(backbone, task, example.input, LongTexts(stride=task.stride))


def span_rows(backbone: Reader, task: TaskSpec, examples: Sequence[Example]) -> EncodedRows:
    """The windows of all examples. Their targets [windows, 3] are the tokens at which the first right answer starts and
    ends, the first token twice in a window without it, and the number of tokens."""
    rows, targets = list[Encoded](), list[tuple[int, int, int]]()
    for example in examples:
        for row in context_windows(backbone, task, example):
            start, end = find_tokens(row, example.label[0]) if example.label else _NOTHING
            rows.append(row)
            targets.append((start, end, len(row)))
    return EncodedRows(rows, torch.tensor(targets))


def find_tokens(row: Encoded, answer: GoldSpan) -> tuple[int, int]:
    """The first and the last token of an answer; twice the row's first token if part of it is not in the row."""
    start, text = answer.start, answer.text
    first, last = start + len(text) - len(text.lstrip()), start + len(text.rstrip())
    own = [place for place, (begin, end) in enumerate(row.offsets) if begin < last and first < end]
    placed = [span for span in row.offsets if span != NOWHERE]
    is_whole = bool(own) and placed[0][0] <= first and last <= placed[-1][1]
    return (own[0], own[-1]) if is_whole else _NOTHING


class TaggedText(NamedTuple):
    """A text as a task reads it: its windows, the characters of its words, and the right tag of each word."""

    rows: tuple[Encoded, ...]
    words: tuple[Span, ...]
    tags: tuple[str, ...]


def tag_text(backbone: Reader, task: TaskSpec, example: Example) -> TaggedText:
    """The text of an example. Raises a `TrainingError` with its line if it is invalid."""
    with _named_line(example):
        rows = encode_windows(backbone, task, example.input, LongTexts(stride=task.stride))
        words: tuple[Span, ...] | None = example.label.words
        if words is None:  # also those that truncation drops
            words = _find_words(encode_windows(backbone, task, example.input, LongTexts(stride=0)))
        else:
            rows = at_words(rows, words)
    return TaggedText(rows, words, tuple(word_tags(words, example.label.entities)))


def _find_words(rows: Sequence[Encoded]) -> tuple[Span, ...]:
    """The characters of the tokenizer's words."""
    found = dict[int, Span]()
    for row in rows:
        for (start, end), word in zip(row.offsets, row.words, strict=True):
            if word != NO_WORD:
                found[word] = (found.get(word, (start, end))[0], end)
    return tuple(found[word] for word in sorted(found))


def tag_rows(backbone: Reader, task: TaskSpec, examples: Sequence[Example]) -> EncodedRows:
    """The windows of all examples. Their targets [windows, max_length] are the tag of a word at its first token, and
    `IGNORED` at the other tokens; after the last token they are `NO_TOKEN`."""
    places = {tag: place for place, tag in enumerate(task.labels)}
    texts = [tag_text(backbone, task, example) for example in examples]
    rows = [row for text in texts for row in text.rows]
    targets = [target for text in texts for target in _tag_targets(text, places, task.max_length)]
    return EncodedRows(rows, torch.stack(targets))


def _tag_targets(text: TaggedText, places: Mapping[str, int], length: int) -> list[Tensor]:
    first = dict[int, Span]()
    for row in text.rows:
        for span, word in zip(row.offsets, row.words, strict=True):
            first.setdefault(word, span)
    found = []
    for row in text.rows:
        target, seen = torch.full((length,), NO_TOKEN), {NO_WORD}
        for place, (span, word) in enumerate(zip(row.offsets, row.words, strict=True)):
            # A window may begin within a word, and several tokens may be of one character.
            is_first = word not in seen and span == first[word]
            target[place] = places[text.tags[word]] if is_first else IGNORED
            seen.add(word)
        found.append(target)
    return found
