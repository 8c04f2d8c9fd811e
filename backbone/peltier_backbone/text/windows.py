"""Rows that each hold a part of a long text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tokenizers import Encoding, Tokenizer

from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.token_places import NO_WORD, NOWHERE, TokenPlaces


def window_starts(num_tokens: int, room: int, stride: int) -> Sequence[int]:
    """The first token of each window of at most `room` of `num_tokens` tokens. Neighbours share `stride` tokens."""
    return range(0, max(num_tokens - stride, 1), max(room - stride, 1))


@dataclass(frozen=True)
class RowFrame:
    """What is around the tokens of a text in each of its rows: special tokens, and the tokens of a question.
    `token_type` is the type of the text's own tokens."""

    ids: tuple[tuple[int, ...], tuple[int, ...]]
    types: tuple[tuple[int, ...], tuple[int, ...]]
    token_type: int

    @classmethod
    def create(cls, fast: Tokenizer, question: Encoding | None, text: Encoding) -> "RowFrame":
        """The frame that `fast` puts around `text`."""
        whole = fast.post_process(text) if question is None else fast.post_process(question, text)
        own = [place for place, number in enumerate(whole.sequence_ids) if number == (question is not None)]
        start, end = (own[0], own[-1] + 1) if own else (len(whole) - 1,) * 2
        ids, types = tuple(whole.ids), tuple(whole.type_ids)
        return cls((ids[:start], ids[end:]), (types[:start], types[end:]), types[start])

    def fill(self, ids: Sequence[int], places: TokenPlaces, start: int) -> Encoded:
        """The row of the tokens `ids`, which begin at token `start` of the text."""
        end, (before, after) = start + len(ids), map(len, self.ids)
        return Encoded(
            (*self.ids[0], *ids, *self.ids[1]),
            (*self.types[0], *(self.token_type,) * len(ids), *self.types[1]),
            offsets=(*(NOWHERE,) * before, *places.offsets[start:end], *(NOWHERE,) * after),
            words=(*(NO_WORD,) * before, *places.words[start:end], *(NO_WORD,) * after),
        )


@dataclass(frozen=True)
class WindowedText:
    """A text whose tokens are known and whose rows are not made yet. Its rows begin at the tokens `starts`, and each
    has at most `room` of them."""

    frame: RowFrame
    ids: Sequence[int]
    places: TokenPlaces
    starts: Sequence[int]
    room: int
    num_dropped: int
    unread: bool

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self) -> tuple[Encoded, ...]:
        """One row for each window."""
        return tuple(
            replace(
                self.frame.fill(self.ids[start : start + self.room], self.places, start),
                num_dropped=self.num_dropped,
                unread=self.unread,
            )
            for start in self.starts
        )
