"""Tokens of texts and pairs are those of transformers, truncated or not."""

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.tokenizer import load_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer

TEXTS = st.text("ab .", max_size=30)


def _reference(directory: Path, text: str, pair: str | None, max_tokens: int) -> Encoded:
    fast = FastTokenizer.from_file(str(directory / "tokenizer.json"))
    fast.no_padding()
    fast.enable_truncation(max_tokens, strategy="longest_first")
    encoding = fast.encode(text, pair)
    fast.no_truncation()
    num_dropped = len(fast.encode(text, pair)) - len(encoding)
    return Encoded(tuple(encoding.ids), tuple(encoding.type_ids), num_dropped=num_dropped)


@given(text=TEXTS, pair=st.none() | TEXTS, max_tokens=st.integers(5, 24))
def test_truncation_is_longest_first(text, pair, max_tokens, bert, bert_directory):
    """The cut of a WordPiece text or pair is the fast tokenizer's, and what it drops is counted."""
    assert bert.tokenizer.encode(text, pair, max_tokens=max_tokens) == _reference(
        bert_directory, text, pair, max_tokens
    )


@given(text=TEXTS, pair=st.none() | TEXTS, max_tokens=st.integers(5, 24))
def test_truncation_of_roberta(text, pair, max_tokens, roberta, roberta_directory):
    """The same with RoBERTa's four special tokens a pair."""
    assert roberta.tokenizer.encode(text, pair, max_tokens=max_tokens) == _reference(
        roberta_directory, text, pair, max_tokens
    )


def test_no_limit_means_all_tokens(bert: Backbone):
    """Without a limit nothing is cut; of what is cut from a text of some length not all is counted, which is said."""
    assert len(bert.tokenizer.encode("a " * 500)) == 502
    for num_words in (500, 5000):
        found = bert.tokenizer.encode("a " * num_words, max_tokens=10)
        assert (found.truncated, found.unread) == (True, num_words == 5000)
        assert found.unread or found.num_dropped == num_words - 8
        assert not bert.tokenizer.encode("a " * num_words).truncated


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


def test_t5_texts_end_with_its_end_token(t5: Backbone):
    """Each text of a pair has its own; a limit cuts the text, never the end."""
    assert t5.tokenizer.encode("good film").ids == (*t5.tokenizer.ids("good film"), 1)
    assert t5.tokenizer.encode("good", "film").ids == (*t5.tokenizer.ids("good"), 1, *t5.tokenizer.ids("film"), 1)
    cut = t5.tokenizer.encode("good film " * 20, max_tokens=5).ids
    assert (len(cut), cut[-1]) == (5, 1)


@given(words=st.lists(st.sampled_from(("good", "film", "zz9", "a", "dull,")), max_size=6))
def test_what_is_encoded_decodes_again(words: list[str], t5: Backbone):
    """Without special tokens, and whether they were there or not."""
    text = " ".join(words)
    assert t5.tokenizer.decode(t5.tokenizer.ids(text)) == text
    assert t5.tokenizer.decode((0, *t5.tokenizer.encode(text).ids, 0)) == text


def test_nothing_decodes_to_nothing(t5: Backbone):
    """An answer that ends at once is an empty text."""
    assert t5.tokenizer.decode(()) == t5.tokenizer.decode((0, 1)) == ""


FILE_TEXTS = ("a good film", "", "Déjà-vu , e\u0301 ☃ \n\t x", "good film " * 300)


def _modernbert() -> Tokenizer:
    """Byte-level BPE after NFC, with special tokens behind the vocabulary."""
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"])
    return _with_specials(tokenizer, "[CLS]", "[SEP]")


def _mmbert() -> Tokenizer:
    """Gemma's: BPE of pieces with spaces as letters, and bytes for unknown characters."""
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "g", "o", "d", "f", "i", "l", "m", "a", "go", "od", "good"]
    merges = [("g", "o"), ("o", "d"), ("go", "od")]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"])
    return _with_specials(tokenizer, "<bos>", "<eos>")


def _with_specials(tokenizer: Tokenizer, first: str, last: str) -> Tokenizer:
    specials = [(token, tokenizer.token_to_id(token)) for token in (first, last)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", pair=f"{first} $A {last} $B {last}", special_tokens=specials
    )
    return tokenizer


@pytest.mark.parametrize(
    ("fast", "pad"), [(_modernbert(), "[PAD]"), (_mmbert(), "<pad>")], ids=["modernbert", "mmbert"]
)
def test_tokens_are_those_of_the_file(fast: Tokenizer, pad: str, tmp_path: Path):
    """Texts and pairs, whole and truncated; token types are all zero, and the pad token is found."""
    fast.save(str(tmp_path / "tokenizer.json"))
    own = load_tokenizer(tmp_path)
    assert own.pad_id == fast.token_to_id(pad)
    for text in FILE_TEXTS:
        for pair in (None, "a film"):
            found = own.encode(text, pair)
            assert found.ids == tuple(fast.encode(text, pair).ids)
            assert not any(found.types)
            fast.enable_truncation(20, strategy="longest_first")
            assert own.encode(text, pair, max_tokens=20).ids == tuple(fast.encode(text, pair).ids)
            fast.no_truncation()
