"""Tokenization equals the fast tokenizer's own, without its mutable state."""

import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.checkpoint import find_checkpoint
from peltier_backbone.errors import BackboneError
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded
from peltier_backbone.tokenizer import load_tokenizer
from tokenizers import Tokenizer as FastTokenizer

TEXTS = st.text("ab .", max_size=30)


def _reference(directory: Path, text: str, pair: str | None, max_tokens: int) -> Encoded:
    fast = FastTokenizer.from_file(str(directory / "tokenizer.json"))
    fast.no_padding()
    fast.enable_truncation(max_tokens, strategy="longest_first")
    encoding = fast.encode(text, pair)
    return Encoded(tuple(encoding.ids), tuple(encoding.type_ids))


@given(text=TEXTS, pair=st.none() | TEXTS, max_tokens=st.integers(5, 24))
def test_truncation_is_longest_first(
    text: str, pair: str | None, max_tokens: int, bert: Backbone, bert_directory: Path
):
    """The cut of a WordPiece text or pair is the fast tokenizer's."""
    assert bert.tokenizer.encode(text, pair, max_tokens=max_tokens) == _reference(
        bert_directory, text, pair, max_tokens
    )


@given(text=TEXTS, pair=st.none() | TEXTS, max_tokens=st.integers(5, 24))
def test_truncation_of_roberta(
    text: str, pair: str | None, max_tokens: int, roberta: Backbone, roberta_directory: Path
):
    """The same with RoBERTa's four special tokens a pair."""
    assert roberta.tokenizer.encode(text, pair, max_tokens=max_tokens) == _reference(
        roberta_directory, text, pair, max_tokens
    )


def test_no_limit_means_all_tokens(bert: Backbone):
    """Without a limit nothing is cut."""
    assert len(bert.tokenizer.encode("a " * 500)) == 502


def test_pairs_have_types(bert: Backbone):
    """The second text's tokens and its separator are of type one."""
    encoded = bert.tokenizer.encode("good", "bad film")
    assert encoded.types == (0, 0, 0, 1, 1, 1)


def test_real_minilm_tokens_equal_transformers(minilm: Backbone):
    """The real vocabulary gives the ids that transformers gives."""
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(find_checkpoint("minilm"))
    for text, pair in (("A gem of a film, naïve!", None), ("What?", "Nothing: 東京 😀."), ("", "x")):
        expected = theirs(text, pair)
        found = minilm.tokenizer.encode(text, pair)
        assert list(found.ids) == expected["input_ids"]
        assert list(found.types) == expected["token_type_ids"]


def test_threads_with_different_limits_do_not_disturb_each_other(minilm: Backbone):
    """A limit belongs to the call, not to the tokenizer."""
    lengths: dict[int, set[int]] = {limit: set() for limit in (8, 16, 32, 64)}

    def work(limit: int) -> None:
        for _ in range(200):
            lengths[limit].add(len(minilm.tokenizer.encode("word " * 100, max_tokens=limit)))

    threads = [threading.Thread(target=work, args=(limit,)) for limit in lengths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lengths == {limit: {limit} for limit in lengths}


def test_a_vocabulary_file_is_enough(bert: Backbone, tmp_path: Path):
    """Old checkpoints have vocab.txt and no tokenizer.json."""
    minilm = find_checkpoint("minilm")
    for name in ("vocab.txt", "config.json", "tokenizer_config.json"):
        shutil.copy(minilm / name, tmp_path)
    text = "A gem of a film."
    assert load_tokenizer(tmp_path).encode(text) == load_tokenizer(minilm).encode(text)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff"])
def test_a_broken_tokenizer_is_refused(content: bytes | None, bert_directory: Path, tmp_path: Path):
    """A missing or unreadable tokenizer is one sentence with the directory."""
    shutil.copy(bert_directory / "config.json", tmp_path)
    if content is not None:
        (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(BackboneError, match="has no readable tokenizer"):
        load_tokenizer(tmp_path)
