"""Converts the logits of a text's tokens to entities, as transformers' token-classification pipeline does."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.token_places import NO_WORD, Span
from torch import Tensor

from peltier_adapters.answers.tags import OUTSIDE, split_tag
from peltier_adapters.batch.row import Row, RowGates, RowOutput

AggregationStrategy = Literal["none", "simple", "first", "average", "max"]


class FoundEntity(NamedTuple):
    """A part of a text: its characters [start, end), its label, and the mean probability of the label."""

    start: int
    end: int
    label: str
    score: float


@dataclass(frozen=True)
class TaggedRow:
    """What entities are found from: the likeliest tags of a row's tokens. `tags` is [tokens, 4]: the number of a
    token's likeliest tag and its probability, then both for the average of the probabilities of its word's tokens.
    `gates` are those of a `RowOutput`."""

    tags: Tensor
    gates: RowGates | None


def tag_row(row: Row, output: RowOutput) -> TaggedRow:
    """The tags of a row from its logits [tokens, labels], which are much larger for many labels."""
    probabilities = output.logits.softmax(-1)
    _, sizes = torch.unique_consecutive(torch.tensor(row.encoded.words), return_counts=True)
    sizes[-1] += len(probabilities) - len(row.encoded.words)
    averages = torch.segment_reduce(probabilities, "mean", lengths=sizes, axis=0)
    own, of_words = probabilities.max(-1), averages.max(-1)
    words = torch.stack((of_words.indices.float(), of_words.values), 1).repeat_interleave(sizes, 0)
    tags = torch.stack((own.indices.float(), own.values), 1)
    return TaggedRow(torch.cat((tags, words), 1), output.gates)


class TextTokens(NamedTuple):
    """The tokens of a text in order, with the numbers of their words and their values [tokens, columns]: logits, or the
    tags of a `TaggedRow`."""

    offsets: Sequence[Span]
    words: Sequence[int]
    values: Tensor


def join_windows(rows: Sequence[Encoded], values: Sequence[Tensor]) -> TextTokens:
    """The tokens of a text from its windows. The tokens that two windows share are divided between them: the first half
    is taken from the first window, so that each token has the most context. Words are not divided."""
    cuts = [_cut(before, after) for before, after in pairwise(rows)]
    offsets, words, kept = list[Span](), list[int](), list[Tensor]()
    for row, own, first, end in zip(rows, values, [0, *cuts], [*cuts, _end(rows[-1])], strict=True):
        tokens = enumerate(zip(row.offsets, row.words, strict=True))
        places = [place for place, ((start, _), word) in tokens if word != NO_WORD and first <= start < end]
        offsets += [row.offsets[place] for place in places]
        words += [row.words[place] for place in places]
        kept.append(own[places])
    return TextTokens(offsets, words, torch.cat(kept))


def _end(row: Encoded) -> int:
    """The end of the row's last character."""
    return max((end for _, end in row.offsets), default=0)


def _cut(before: Encoded, after: Encoded) -> int:
    """The character at which the tokens of the second window begin to replace those of the first."""
    end = _end(before)
    shared = [
        (start, word)
        for (start, _), word in zip(after.offsets, after.words, strict=True)
        if word != NO_WORD and start < end
    ]
    if not shared:
        return end
    begins = [place for place in range(1, len(shared)) if shared[place][1] != shared[place - 1][1]]
    middle = len(shared) // 2
    return shared[min(begins, key=lambda place: abs(place - middle), default=middle)][0]


def find_entities(labels: Sequence[str], tokens: TextTokens, aggregation: AggregationStrategy) -> list[FoundEntity]:
    """The entities of a text, in order. The values of `tokens` are tags; `labels` are the names of the tags, such as
    `B-person`, and `O`.

    `none` gives each token with its tag, `simple` joins neighbouring tokens of an entity. The others give all tokens of
    a word one tag: that of its `first` token, of the `average` probabilities, or of the token with the `max` one."""
    units = [FoundEntity(start, end, labels[best], score) for start, end, best, score in _units(tokens, aggregation)]
    if aggregation == "none":
        return [unit for unit in units if unit.label != OUTSIDE]
    return [_join(label, members) for label, members in _groups(units) if label != OUTSIDE]


def _units(tokens: TextTokens, aggregation: AggregationStrategy) -> Iterator[tuple[int, int, int, float]]:
    """The characters, the best label and its probability of each token, or of each word."""
    if not tokens.words:
        return
    tags = tokens.values.numpy()  # unlike torch, numpy does not release the GIL
    starts = chosen = np.arange(len(tokens.words))
    if aggregation not in ("none", "simple"):
        starts = chosen = np.flatnonzero(np.diff(tokens.words, prepend=NO_WORD))
    if aggregation == "max":
        chosen = starts + np.array([own.argmax() for own in np.split(tags[:, 1], starts[1:])])
    label_column = 2 if aggregation == "average" else 0
    best, top = tags[chosen, label_column].astype(int).tolist(), tags[chosen, label_column + 1].tolist()
    ends = [*starts[1:].tolist(), len(tokens.words)]
    for start, end, label, score in zip(starts.tolist(), ends, best, top, strict=True):
        yield tokens.offsets[start][0], tokens.offsets[end - 1][1], label, score


def _groups(units: Sequence[FoundEntity]) -> Iterator[tuple[str, list[FoundEntity]]]:
    """Runs of neighbours with the same label. A tag that begins an entity begins a new run."""
    group, label = list[FoundEntity](), OUTSIDE
    for unit in units:
        begins, own = split_tag(unit.label)
        if group and (begins or own != label):
            yield label, group
            group = []
        group.append(unit)
        label = own
    if group:
        yield label, group


def _join(label: str, members: Sequence[FoundEntity]) -> FoundEntity:
    score = sum(member.score for member in members) / len(members)
    return FoundEntity(members[0].start, members[-1].end, label, score)
