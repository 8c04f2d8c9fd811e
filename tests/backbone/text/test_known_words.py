"""Known words give the tokens of the tokenizer that read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.text import known_words
from peltier_backbone.text.known_words import KnownWords, reads_words_apart
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import normalizers, pre_tokenizers

FAST = FastTokenizer.from_file(str(find_checkpoint("minilm") / "tokenizer.json"))
FAST.no_truncation()
FAST.no_padding()
PIECES = st.sampled_from(["a", "film", "Naive", "un", "[MASK]", "[SEP]", "don't", "...", "x" * 40, "é", "東", "\t"])
TEXTS = st.lists(PIECES | st.text(max_size=6) | st.text(st.characters(max_codepoint=127), max_size=6)).flatmap(
    lambda pieces: st.sampled_from([" ", "", "  "]).map(lambda space: space.join(pieces))
)
WORDS = KnownWords(FAST)


@given(text=TEXTS)
def test_tokens_equal_those_of_the_tokenizer(text: str):
    """Whatever the words are made of, their tokens are those of the whole text, at the first time and later."""
    expected = tuple(FAST.encode(text).ids)
    assert WORDS.encode(text) in (expected, None)
    assert WORDS.encode(text) in (expected, None)


def test_an_ordinary_sentence_is_known():
    """The words of a sentence are known after it was read a few times."""
    text = "A gripping and deeply felt film about the cost of ambition, isn't it?"
    for _ in range(3):
        found = WORDS.encode(text)
    assert found == tuple(FAST.encode(text).ids)


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """Neither many words nor long ones take memory without end."""
    monkeypatch.setattr(known_words, "_MAX_WORDS", 10)
    words = KnownWords(FAST)
    for number in range(100):
        words.encode(f"w{number} {'x' * 100}")
    assert len(words._ids) <= 10 + known_words._MAX_LEARNT_WORDS
    assert max(map(len, words._ids)) <= known_words._MAX_WORD_CHARS


def test_only_tokenizers_that_read_words_apart(roberta: Backbone, t5: Backbone):
    """A tokenizer that sees the space before a word, or an added token with a space, needs the whole text."""
    assert reads_words_apart(FAST)
    assert not reads_words_apart(roberta.tokenizer._fast)
    assert not reads_words_apart(t5.tokenizer._fast)
    for change in (
        lambda fast: fast.add_tokens(["two words"]),
        lambda fast: setattr(fast, "normalizer", normalizers.NFKC()),
        lambda fast: setattr(fast, "pre_tokenizer", pre_tokenizers.Whitespace()),
    ):
        other = FastTokenizer.from_str(FAST.to_str())
        change(other)
        assert not reads_words_apart(other)
