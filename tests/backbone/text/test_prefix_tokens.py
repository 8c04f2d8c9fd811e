"""The beginning of a long text gives the first tokens of the whole text."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.text import tokenizer as tokenizer_module
from peltier_backbone.text.prefix_tokens import is_local
from peltier_backbone.text.tokenizer import Tokenizer
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

Make = Callable[[], FastTokenizer]

# What tokenizers treat in ways of their own, and where something may join what stands before it.
_ATOMS = ["a", "b", "good", "film", " ", "  ", "\n", "  \t ", "'", "'s", "'re", "don't", ",", ".", "!", "=", "1", "23"]
_ATOMS += ["é", "e\u0301", "\u0301", "\u0338", "\u302e", "\U0001d165", "\u00a8", "\u00a0", "\u3000", "\u00ad", "ﬁ", "İ"]
_ATOMS += ["東", "京", "한", "\u1112", "\u1161", "\u11ab", "\u200d", "👩", "🇩", "▁", "\x00", "x" * 12]
_ATOMS += ["<mask>", "[SEP]", "</s>", "[", "<ma", "sk>"]
# WordPiece knows no word of more than a hundred characters, so its end decides on its beginning.
_ATOMS += [" " + "x" * 110] * 2
# Of many characters and yet quick to make.
TEXTS = st.builds(
    lambda seed, length: "".join(random.Random(seed).choices(_ATOMS, k=length)),
    st.integers(0, 2**32),
    st.integers(0, 120),
)
_SPACED = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
_T5_SPACES = normalizers.Sequence([normalizers.Strip(left=False), normalizers.Replace(Regex(" {2,}"), "▁")])


@pytest.fixture(scope="module")
def makers(bert_directory: Path, roberta_directory: Path, t5_directory: Path) -> dict[str, Make]:
    """Tokenizers of each family, and of T5 in the forms in which they are published."""

    def make(directory: Path, **parts: object) -> FastTokenizer:
        fast = FastTokenizer.from_file(str(directory / "tokenizer.json"))
        for name, part in parts.items():
            setattr(fast, name, part)
        fast.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False)])
        return fast

    return {
        "bert": lambda: make(bert_directory),
        "roberta": lambda: make(roberta_directory),
        "t5": lambda: make(t5_directory),
        "t5 in NFKC": lambda: make(t5_directory, normalizer=normalizers.NFKC(), pre_tokenizer=_SPACED),
        "t5 of a slow one": lambda: make(t5_directory, normalizer=_T5_SPACES),
    }


@pytest.mark.slow
@given(
    family=st.sampled_from(("bert", "roberta", "t5", "t5 in NFKC", "t5 of a slow one")),
    text=TEXTS,
    pair=st.none() | TEXTS,
    max_tokens=st.integers(3, 14),
)
def test_a_beginning_has_the_tokens_of_the_whole(family, text, pair, max_tokens, makers):
    """Of texts and pairs, in each tokenizer of which it is known; an uneven number of a pair's tokens included."""
    bounded, whole = Tokenizer(makers[family]()), Tokenizer(makers[family]())
    assert bounded._is_local
    whole._is_local = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer_module, "_SHORT_CHARS", 1)
        patch.setattr(tokenizer_module, "_CHARS_PER_TOKEN", 1)
        found = bounded.encode(text, pair, max_tokens=max_tokens)
        expected = whole.encode(text, pair, max_tokens=max_tokens)
    assert (found.ids, found.types, found.truncated) == (expected.ids, expected.types, expected.truncated)
    assert found.num_dropped == expected.num_dropped or (found.unread and found.num_dropped < expected.num_dropped)


def test_of_a_long_text_a_beginning_is_read(makers: dict[str, Make], monkeypatch: pytest.MonkeyPatch):
    """However long the text is, as many characters as its tokens take."""
    tokenizer = Tokenizer(makers["bert"]())
    lengths: list[int] = []

    class Counting:
        def encode_batch(self, texts: list[str], **given: object) -> object:
            lengths.extend(map(len, texts))
            return tokenizer_fast.encode_batch(texts, **given)

        def __getattr__(self, name: str) -> object:
            return getattr(tokenizer_fast, name)

    tokenizer_fast, tokenizer._fast = tokenizer._fast, Counting()
    assert tokenizer.encode("good film " * 200_000, max_tokens=64).unread
    assert max(lengths) < 2048


def test_at_most_so_many_characters_are_read(makers: dict[str, Make]):
    """A word without end is truncated to them, and so is a text of blanks; a shorter text is not."""
    tokenizer = Tokenizer(makers["t5"]())
    assert tokenizer.encode("x" * 5000, max_tokens=4000, max_chars=3000).truncated
    assert len(tokenizer.encode("9" * 5000, max_tokens=4000, max_chars=3000)) == 3002
    assert tokenizer.encode(" " * 5000 + "good", max_tokens=9, max_chars=3000).truncated
    assert not tokenizer.encode("x" * 3000, max_tokens=4000, max_chars=3000).truncated


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("pre_tokenizer", None),
        ("pre_tokenizer", pre_tokenizers.Split(Regex(r".+?(?=x)|.+"), "isolated")),
        ("pre_tokenizer", pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(), pre_tokenizers.Digits()])),
        ("normalizer", normalizers.Replace(Regex(r"a.*z"), "b")),
        ("normalizer", normalizers.NFC()),
        ("model", models.BPE({"a": 0}, [], dropout=0.1)),
    ],
    ids=str,
)
def test_a_tokenizer_that_is_not_known_is_read_whole(part: str, value: object, makers: dict[str, Make]):
    """Nothing is concluded of a rule that may look at all that follows."""
    fast = makers["bert"]()
    assert is_local(fast)
    setattr(fast, part, value)
    assert not is_local(fast)


def test_added_tokens_of_normalized_text_are_read_whole(makers: dict[str, Make]):
    """Their length in the original text is not known."""
    fast = makers["bert"]()
    fast.add_tokens([AddedToken("resume", normalized=True)])
    assert not is_local(fast)
