"""The trained tokenizer, as `tokenizers` and transformers load it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_training.errors import TrainingError
from peltier_training.pretraining.tokenizer import MIN_VOCAB, SENTINELS, train_tokenizer, write_tokenizer
from tokenizers import Tokenizer
from transformers import AutoTokenizer

VOCAB_SIZE = 700
ENGLISH = (
    "The quiet teacher walked to the river, painted it twice, and answered: nothing!",
    'name : The Vaults | price : more than £ 30 -> "It costs $5.50 (or 10 %)," she said.',
    "a café in Köln; naïve 日本 😀 <b>x</b> under_score C:\\path #1 @home",
)


@pytest.fixture(scope="module")
def tokenizer(text: Path) -> Tokenizer:
    """Of the small text."""
    return train_tokenizer(text.read_text().split("\n\n"), VOCAB_SIZE)


def test_ids_are_t5s(tokenizer: Tokenizer):
    """<pad> </s> <unk> come first, the sentinels last and backwards, and every id has a token of its own."""
    assert [tokenizer.id_to_token(i) for i in range(3)] == ["<pad>", "</s>", "<unk>"]
    assert [tokenizer.token_to_id(token) for token in SENTINELS] == list(range(VOCAB_SIZE - 1, VOCAB_SIZE - 101, -1))
    assert tokenizer.get_vocab_size() == len(tokenizer.get_vocab()) == VOCAB_SIZE


@pytest.mark.parametrize("sentence", ENGLISH)
def test_english_comes_back(tokenizer: Tokenizer, sentence: str):
    """Whole strings survive, with characters that the training text does not have."""
    ids = tokenizer.encode(sentence).ids
    assert ids[-1] == 1
    assert 2 not in ids
    assert tokenizer.decode(ids) == sentence


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1))
def test_any_ascii_word_comes_back(tokenizer: Tokenizer, word: str):
    """No printable character is unknown; a sentinel's name is a sentinel."""
    if "<" not in word:
        assert tokenizer.decode(tokenizer.encode(word).ids) == word


def test_white_space_is_one_space(tokenizer: Tokenizer):
    """As in T5: lines, tabs and runs of spaces."""
    assert tokenizer.encode(" a\n\n small\tengine ").ids == tokenizer.encode("a small engine").ids


def test_a_pair_has_two_ends(tokenizer: Tokenizer):
    """Each text of a pair is followed by </s>."""
    assert tokenizer.encode("a", "one").ids == tokenizer.encode("a").ids + tokenizer.encode("one").ids


def test_transformers_loads_the_same(tokenizer: Tokenizer, tmp_path: Path):
    """`AutoTokenizer` gives the same ids and strings, and knows the special tokens."""
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    write_tokenizer(tokenizer, tmp_path, 512)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert (loaded.pad_token_id, loaded.eos_token_id, loaded.unk_token_id, len(loaded)) == (0, 1, 2, VOCAB_SIZE)
    for sentence in (*ENGLISH, "to <extra_id_0> or <extra_id_99>"):
        ids = tokenizer.encode(sentence).ids
        assert loaded(sentence).input_ids == ids
        assert loaded.decode(ids, skip_special_tokens=True) == tokenizer.decode(ids)


def test_a_small_text_has_few_pieces(text: Path):
    """The sentence says how many."""
    with pytest.raises(TrainingError, match=r"the text is enough for a vocabulary of \d+ tokens, not 60000"):
        train_tokenizer([text.read_text()], 60_000)


def test_the_smallest_vocabulary(text: Path):
    """What `MIN_VOCAB` promises holds."""
    assert train_tokenizer([text.read_text()], MIN_VOCAB).get_vocab_size() == MIN_VOCAB
