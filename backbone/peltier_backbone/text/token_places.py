"""The characters and the word of each token of a text."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from tokenizers import Encoding

Span = tuple[int, int]

NOWHERE: Span = (0, 0)
NO_WORD = -1
# Chinese and Japanese have no spaces between words, so each token begins a word there, as with BERT's tokenizer.
_UNSPACED = (("\u3040", "\u30ff"), ("\u3400", "\u4dbf"), ("\u4e00", "\u9fff"), ("\uf900", "\ufaff"))


@dataclass(frozen=True, slots=True)
class TokenPlaces:
    """For each token its characters [start, end) in the text, without spaces around them, and the number of its word.
    A token without characters is `NOWHERE` and has `NO_WORD`."""

    offsets: tuple[Span, ...]
    words: tuple[int, ...]


def place_tokens(encoding: Encoding, text: str, prefix: str | None) -> TokenPlaces:
    """The places of the tokens of `text`, without special tokens. `prefix` marks tokens that continue a word.

    Without a prefix, a word ends at a space, at punctuation, and at each Chinese or Japanese token."""
    spans = [_trimmed(text, *span) for span in encoding.offsets]
    words, word, last = [], NO_WORD, 0
    for (start, end), token in zip(spans, encoding.tokens, strict=True):
        if start < end:
            continues = token.startswith(prefix) if prefix else start < last or _is_inside_word(text, start)
            word += not continues or word == NO_WORD
            last = end
        words.append(word if start < end else NO_WORD)
    return TokenPlaces(tuple(span if span[0] < span[1] else NOWHERE for span in spans), tuple(words))


def words_at_spaces(text: str) -> tuple[Span, ...]:
    """The characters between the spaces of a text, as words."""
    return tuple(match.span() for match in re.finditer(r"\S+", text))


def number_words(offsets: Sequence[Span], words: Sequence[Span]) -> tuple[int, ...]:
    """The number of the word of `words` in which each token begins; `NO_WORD` where there is none."""
    return tuple(_number(span, bisect_right(words, span[0], key=itemgetter(0)) - 1, words) for span in offsets)


def _number(span: Span, place: int, words: Sequence[Span]) -> int:
    return place if place >= 0 and span[0] < words[place][1] and span != NOWHERE else NO_WORD


def _trimmed(text: str, start: int, end: int) -> Span:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def _is_inside_word(text: str, place: int) -> bool:
    """Whether no word begins at this character."""
    return place > 0 and _is_in_words(text[place - 1]) and _is_in_words(text[place]) and not _is_unspaced(text[place])


def _is_in_words(character: str) -> bool:
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def _is_unspaced(character: str) -> bool:
    return any(first <= character <= last for first, last in _UNSPACED)
