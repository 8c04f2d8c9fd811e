"""The windows of texts, the tags of their words, and the targets of their tokens."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from peltier_adapters.errors import InputError
from peltier_adapters.inputs import LongTexts, Reader, at_words, encode_windows
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.token_places import NO_WORD, Span
from torch import Tensor

from peltier_training.data.dataset import IGNORED, EncodedRows
from peltier_training.data.examples import Example
from peltier_training.data.tags import word_tags
from peltier_training.errors import TrainingError

NO_TOKEN = -200  # fills the targets of a row up to the task's length


class TaggedText(NamedTuple):
    """A text as a task reads it: its windows, the characters of its words, and the right tag of each word."""

    rows: tuple[Encoded, ...]
    words: tuple[Span, ...]
    tags: tuple[str, ...]


def tag_text(backbone: Reader, task: TaskSpec, example: Example) -> TaggedText:
    """The text of an example. Raises a `TrainingError` with its line if it is invalid."""
    try:
        rows = encode_windows(backbone, task, example.input, LongTexts(stride=task.stride))
        words: tuple[Span, ...] | None = example.label.words
        if words is None:  # also those that truncation drops
            words = _find_words(encode_windows(backbone, task, example.input, LongTexts(stride=0)))
        else:
            rows = at_words(rows, words)
    except InputError as error:
        raise TrainingError(f"{example.where}: {error}") from None
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
    targets = [target for text in texts for target in _targets(text, places, task.max_length)]
    return EncodedRows(rows, torch.stack(targets))


def _targets(text: TaggedText, places: Mapping[str, int], length: int) -> list[Tensor]:
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
