"""Windows of a text have the ids and the offsets that the fast tokenizer gives."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.token_places import NO_WORD, number_words, words_at_spaces
from peltier_backbone.text.tokenizer import Tokenizer
from peltier_backbone.text.windows import RowFrame
from tokenizers import Encoding
from tokenizers import Tokenizer as FastTokenizer

TEXTS = st.text("ab .,é東", min_size=1, max_size=40).filter(str.strip)


def _reference(directory: Path, text: str, max_tokens: int, stride: int) -> list[Encoding]:
    fast = FastTokenizer.from_file(str(directory / "tokenizer.json"))
    fast.no_padding()
    fast.enable_truncation(max_tokens, stride=stride)
    encoding = fast.encode(text)
    return [encoding, *encoding.overflowing]


def _places(row: Encoded) -> list[tuple[int, int]]:
    return [span for span, word in zip(row.offsets, row.words, strict=True) if word != NO_WORD]


@given(text=TEXTS, max_tokens=st.integers(6, 12), stride=st.integers(0, 2))
def test_windows_are_those_of_the_tokenizer(text, max_tokens, stride, bert, bert_directory):
    """The rows of a text are its windows, and nothing of it is dropped."""
    rows = bert.tokenizer.read_windows(text, max_tokens=max_tokens, stride=stride).rows()
    expected = _reference(bert_directory, text, max_tokens, stride)
    assert [list(row.ids) for row in rows] == [encoding.ids for encoding in expected]
    assert [list(row.offsets) for row in rows] == [encoding.offsets for encoding in expected]
    assert not any(row.truncated for row in rows)


@given(text=TEXTS, max_tokens=st.integers(6, 12), stride=st.integers(0, 2))
def test_windows_of_roberta(text: str, max_tokens: int, stride: int, roberta: Backbone, roberta_directory: Path):
    """The same with byte-level tokens, whose offsets have no spaces around them."""
    rows = roberta.tokenizer.read_windows(text, max_tokens=max_tokens, stride=stride).rows()
    expected = _reference(roberta_directory, text, max_tokens, stride)
    assert [list(row.ids) for row in rows] == [encoding.ids for encoding in expected]
    assert all(text[start:end] == text[start:end].strip() != "" for row in rows for start, end in _places(row))


@given(text=TEXTS, max_tokens=st.integers(6, 12))
def test_one_window_is_the_truncated_row(text: str, max_tokens: int, bert: Backbone):
    """Without a stride the row is that of `encode`, with offsets besides."""
    (row,) = bert.tokenizer.read_windows(text, max_tokens=max_tokens).rows()
    plain = bert.tokenizer.encode(text, max_tokens=max_tokens)
    assert (row.ids, row.types, row.num_dropped) == (plain.ids, plain.types, plain.num_dropped)


def test_a_question_is_in_every_window(bert: Backbone):
    """The offsets are those of the context; a question keeps at most half of the tokens that fit."""
    rows = bert.tokenizer.read_windows("good film", "a dull actor is a bad film", max_tokens=10, stride=2).rows()
    assert {row.ids[: row.types.index(1)] for row in rows} == {bert.tokenizer.encode("good film").ids}
    assert [_places(row)[0] for row in rows] == [(0, 1), (13, 15)]
    rows = bert.tokenizer.read_windows("good " * 30, "a dull actor is", max_tokens=11, stride=5).rows()
    assert [(row.types.index(1), row.num_dropped) for row in rows] == [(6, 26)]


class _Counted:
    """An encoding that counts how often its ids are read. Each time makes a list of all of them."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding, self.num_reads = encoding, 0

    @property
    def ids(self) -> list[int]:
        self.num_reads += 1
        return list(self.encoding.ids)

    def __len__(self) -> int:
        return len(self.encoding)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.encoding, name)


def test_the_ids_of_a_text_are_read_once(bert: Backbone, monkeypatch: pytest.MonkeyPatch):
    """So the work for a text grows with its length, and not with that of all windows times its length."""
    frame, read, made = RowFrame.create, Tokenizer._read_all, list[_Counted]()

    def count(*args: Any, **options: Any) -> _Counted:
        made.append(_Counted(read(*args, **options)))
        return made[-1]

    monkeypatch.setattr(Tokenizer, "_read_all", count)
    monkeypatch.setattr(RowFrame, "create", lambda fast, question, text: frame(fast, question, text.encoding))
    rows = bert.tokenizer.read_windows("good film " * 20, max_tokens=8, stride=2).rows()
    assert (len(rows), [one.num_reads for one in made]) == (10, [1])


def test_all_words_are_not_read_for_a_window():
    """The numbers of words are found by a search."""

    class Words(tuple[tuple[int, int], ...]):
        def __iter__(self) -> Iterator[tuple[int, int]]:
            raise AssertionError("every word was read")

    assert number_words([(3, 4), (8, 9)], Words([(0, 2), (3, 5), (6, 9)])) == (1, 2)


def test_words_are_those_of_the_tokenizer(minilm: Backbone):
    """A token that continues a word has its number, in every window."""
    rows = minilm.tokenizer.read_windows("Jyväskylä isn't in Wolverhampton.", max_tokens=12, stride=3).rows()
    words = dict(pair for row in rows for pair in zip(row.offsets, row.words, strict=True))
    assert [words[span] for span in sorted(words)] == [-1, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6]


def test_words_of_a_tokenizer_without_marks(roberta: Backbone):
    """Spaces and punctuation end a word, and each Chinese token is one."""
    text = "good-film (a2) 東京"
    (row,) = roberta.tokenizer.read_windows(text, max_tokens=64).rows()
    first = {}
    for (start, _), word in zip(row.offsets, row.words, strict=True):
        first.setdefault(word, start)
    assert [text[first[word]] for word in sorted(set(row.words) - {NO_WORD})] == list("g-f(a)東京")


@pytest.mark.parametrize("stride", [None, 0, 1])
def test_a_row_without_room_for_the_text_is_truncated(stride: int | None, bert: Backbone):
    """Where only special tokens fit, there is one row, whatever the stride: more would have nothing to read."""
    (row,) = bert.tokenizer.read_windows("good film", "a dull actor " * 9, max_tokens=3, stride=stride).rows()
    assert row.truncated
    assert set(row.words) == {NO_WORD}


@pytest.mark.parametrize("max_chars", [8, None])
def test_what_is_not_read_is_said(max_chars: int | None, bert: Backbone):
    """A text beyond the limit of characters is truncated, whatever the stride."""
    for stride in (None, 1):
        rows = bert.tokenizer.read_windows("a " * 9, max_tokens=32, stride=stride, max_chars=max_chars).rows()
        assert [row.truncated for row in rows] == [max_chars is not None]


def test_padding_has_no_place(bert: Backbone):
    """Pads are of no word."""
    (row,) = bert.tokenizer.read_windows("good film", max_tokens=8).rows()
    padded = row.padded(8, 0)
    assert len(padded.offsets) == len(padded.words) == 8
    assert (padded.offsets[-1], padded.words[-1]) == ((0, 0), NO_WORD)


def test_words_between_spaces_are_numbered():
    """A token has the number of the given word in which it begins."""
    text = "good-film  by  us"
    assert words_at_spaces(text) == ((0, 9), (11, 13), (15, 17))
    offsets = ((0, 0), (0, 4), (4, 5), (11, 12), (12, 13), (15, 17), (0, 0))
    assert number_words(offsets, words_at_spaces(text)) == (-1, 0, 0, 1, 1, 2, -1)
    assert number_words(offsets, ((11, 13),)) == (-1, -1, -1, 0, 0, -1, -1)
