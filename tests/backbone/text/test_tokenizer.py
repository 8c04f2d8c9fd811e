"""Tokenization equals that of the fast tokenizer, without its mutable state."""

import io
import json
import shutil
import struct
import threading
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.errors import BackboneError
from peltier_backbone.text import tokenizer as tokenizer_module
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.tokenizer import load_tokenizer
from tokenizers import Tokenizer as FastTokenizer
from transformers import AutoTokenizer

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
def test_truncation_is_longest_first(
    text: str, pair: str | None, max_tokens: int, bert: Backbone, bert_directory: Path
):
    """The cut of a WordPiece text or pair is the fast tokenizer's, and what it drops is counted."""
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


def _field(number: int, content: bytes | float | int) -> bytes:
    """One field of a protocol buffer."""
    if isinstance(content, bytes):
        return bytes([number << 3 | 2, len(content)]) + content
    return (
        bytes([number << 3 | 5]) + struct.pack("<f", content)
        if isinstance(content, float)
        else bytes([number << 3, content])
    )


def _sentencepiece() -> bytes:
    """A Unigram model of sentencepiece with T5's three special tokens, as in `spiece.model`."""
    pieces = [
        ("<pad>", 0.0, 3),
        ("</s>", 0.0, 3),
        ("<unk>", 0.0, 2),
        *((piece, -3.0, 1) for piece in ("▁good", "▁film", "a")),
    ]
    encoded = [_field(1, piece.encode()) + _field(2, score) + _field(3, kind) for piece, score, kind in pieces]
    trainer = _field(3, 1) + bytes([40 << 3 & 0x7F | 0x80, 40 >> 4, 2])  # model_type: unigram; unk_id: 2
    return b"".join(_field(1, piece) for piece in encoded) + _field(2, trainer)


def test_a_sentencepiece_model_is_enough(t5_directory: Path, tmp_path: Path):
    """The first published T5s have spiece.model and no tokenizer.json; the sentinels are added behind it."""
    pytest.importorskip("sentencepiece")
    shutil.copy(t5_directory / "config.json", tmp_path)
    (tmp_path / "spiece.model").write_bytes(_sentencepiece())
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("good film").ids == (3, 4, 1)
    assert tokenizer.decode((3, 4, 1)) == "good film"


def test_a_sentencepiece_model_without_its_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It says what to install, and what to do without."""
    monkeypatch.setattr(tokenizer_module, "find_spec", lambda name: None)
    (tmp_path / "spiece.model").write_bytes(_sentencepiece())
    with pytest.raises(BackboneError, match=r"spiece\.model alone needs transformers and sentencepiece and protobuf"):
        load_tokenizer(tmp_path)


def test_a_vocabulary_without_its_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It names the extra that installs what is missing."""
    monkeypatch.setattr(tokenizer_module, "find_spec", lambda name: None)
    shutil.copy(find_checkpoint("minilm") / "vocab.txt", tmp_path)
    with pytest.raises(BackboneError, match=r"vocab\.txt alone needs transformers, which pip install \"peltier\[con"):
        load_tokenizer(tmp_path)


TRAINED_ON = ["a good film", "the plot was not very good", "le chat est très mignon", "東京は大きい", "Öl und Brot"]
WRITTEN = ["a good  film", " très mignon ", "Öl 東京", "ж😀 le", "naïve \n ﬁ ½", ""]


def _train(path: Path, **options: object) -> sentencepiece.SentencePieceProcessor:
    """A SentencePiece model at `path`, and the model itself."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINED_ON * 9), model_writer=file, hard_vocab_limit=False, minloglevel=2, **options
    )
    path.write_bytes(file.getvalue())
    return sentencepiece.SentencePieceProcessor(str(path))


@pytest.mark.parametrize(
    ("family", "first", "unknown", "ends"), [("xlm-roberta", 1, 3, (0, 2)), ("camembert", 4, 3, (5, 6))]
)
def test_a_fairseq_vocabulary_is_that_of_its_sentencepiece_model(
    family: str, first: int, unknown: int, ends: tuple[int, int], tmp_path: Path
):
    """XLM-RoBERTa and CamemBERT put tokens of fairseq before SentencePiece's pieces, and `<mask>` behind them: ids are
    SentencePiece's plus their number, a pair has two separators, and the ids of the ends are those of config.json."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    model = _train(tmp_path / "sentencepiece.bpe.model", vocab_size=90)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.num_entries == model.get_piece_size() + first + 1
    assert tokenizer.pad_id == 1
    for text in WRITTEN:
        own = [unknown if piece == 0 else piece + first for piece in model.encode(text)]
        assert tokenizer.encode(text).ids == (ends[0], *own, ends[1])
        assert tokenizer.encode(text, "bad").ids[: len(own) + 3] == (ends[0], *own, ends[1], ends[1])


def test_a_vocabulary_of_mpnet_is_read_as_transformers_does(tmp_path: Path):
    """Words in pieces between RoBERTa's special tokens, without token types; a pair has two separators."""
    tokens = ["<s>", "<pad>", "</s>", "[UNK]", "[PAD]", "good", "film", "##s", "a", ",", "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mpnet"}))
    tokenizer, theirs = load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert (tokenizer.num_entries, tokenizer.pad_id) == (len(tokens), 1)
    for text in ("A good film", "films, a <mask>", "unknown", "", "a a"):
        assert list(tokenizer.encode(text).ids) == theirs(text)["input_ids"]
        pair = tokenizer.encode(text, "good films")
        assert list(pair.ids) == theirs(text, "good films")["input_ids"]
        assert set(pair.types) == {0}


def test_a_sentencepiece_model_of_deberta_is_read_as_transformers_does(tmp_path: Path):
    """The pieces of `spm.model` between BERT's special tokens; token types tell the texts of a pair apart."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "deberta-v2"}))
    special = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]", "bos_piece": "[CLS]"}
    _train(tmp_path / "spm.model", vocab_size=90, eos_piece="[SEP]", unk_piece="[UNK]", **special)
    tokenizer, theirs = load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.pad_id == theirs.pad_token_id
    for text in WRITTEN:
        assert list(tokenizer.encode(text).ids) == theirs(text)["input_ids"]
        pair = tokenizer.encode(text, "bad")
        assert [list(pair.ids), list(pair.types)] == [
            theirs(text, "bad")[key] for key in ("input_ids", "token_type_ids")
        ]


@pytest.mark.parametrize(("family", "start", "unknown"), [("t5", -1, 2), ("mt5", -1, 2), ("umt5", 2, 3)])
def test_a_model_with_bytes_spells_unknown_characters(family: str, start: int, unknown: int, tmp_path: Path):
    """mT5's SentencePiece model has a piece for each byte, which transformers does not use: ids and texts are those of
    SentencePiece itself."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": 0}))
    special = {"pad_id": 0, "eos_id": 1, "unk_id": unknown, "bos_id": start}
    model = _train(tmp_path / "spiece.model", vocab_size=400, byte_fallback=True, **special)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.num_entries == model.get_piece_size()
    for text in WRITTEN:
        ids = tuple(model.encode(text))
        assert tokenizer.encode(text).ids == (*ids, 1)
        assert tokenizer.decode(ids) == model.decode(list(ids))
