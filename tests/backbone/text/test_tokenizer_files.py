"""The tokenizers of published repositories, compared with transformers and SentencePiece."""

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.errors import BackboneError
from peltier_backbone.text import tokenizer_files
from peltier_backbone.text.tokenizer import load_tokenizer
from peltier_backbone.text.tokenizer_files import write_tokenizer
from transformers import AutoTokenizer, ByT5Tokenizer
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from tests.support.published_tokenizers import PUBLISHED, train_sentencepiece, write_deberta
from tests.support.small_tokenizers import word_piece

SPACES = ["a good  film", "  le chat\n\n\tbad ", "\n", "a\u00a0good\u3000film", "", " "]
CHARACTERS = [
    "Très Mignon, naïve e\u0301!",
    "東京は大きい",
    "ж😀👩‍👩‍👧",
    "It's GOOD, isn't it? 1234567",
    "ﬁ ½ \uff21",
    "a\u200bb\x00\x07c ▁▁b",
]
SPECIAL = [
    "a <mask> b",
    "<mask>",
    "[MASK] a [SEP]b",
    "<s>a</s> <pad>",
    "<bos><eos> a",
    "<|end_of_text|> a",
    "[UNK] <unk>",
]
TEXTS = [*SPACES, *CHARACTERS, *SPECIAL]


@pytest.mark.parametrize("layout", PUBLISHED)
def test_ids_are_those_of_transformers(layout: str, tmp_path: Path) -> None:
    """Of texts and of pairs, with the types that the family has."""
    PUBLISHED[layout](tmp_path)
    own, theirs = load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert own.num_entries == len(theirs)
    for text in TEXTS:
        for pair in (None, "le film"):
            expected, found = theirs(text, pair), own.encode(text, pair)
            assert (text, list(found.ids)) == (text, expected["input_ids"])
            assert list(found.types) == expected.get("token_type_ids", list(found.types))


_ADDED = "naïve東"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("added_tokens.json", {_ADDED: 500}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"500": {"content": _ADDED}}}),
    ],
)
def test_files_are_utf_8_in_every_locale(file: str, content: dict[str, Any], tmp_path: Path) -> None:
    """An added token beyond ASCII is read where the locale's encoding is ASCII."""
    tokenizer = word_piece()
    tokenizer.add_tokens([_ADDED])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / file).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    code = f"from pathlib import Path; import {load_tokenizer.__module__} as own; own.load_tokenizer(Path.cwd())"
    plain = {**os.environ, "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=plain, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_an_unreadable_file_beside_a_tokenizer_is_named(tmp_path: Path) -> None:
    """Rather than the tokenizer itself."""
    word_piece().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(
        BackboneError, match=r"tokenizer\.json: tokenizer_config\.json beside it is no JSON: 'utf-8' codec"
    ):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("file", ["added_tokens.json", "tokenizer_config.json"])
@pytest.mark.parametrize("layout", ["nomic-embed-text-v1.5", "jina-embeddings-v3"])
def test_a_tokenizer_json_without_the_added_tokens_of_another_file_is_refused(layout, file, tmp_path):
    """It is older than the other file, so its texts would be read without the tokens."""
    PUBLISHED[layout](tmp_path)
    load_tokenizer(tmp_path)
    token = {"content": "<new>", "special": False, "normalized": False, "lstrip": False, "rstrip": False}
    if file == "added_tokens.json":
        (tmp_path / file).write_text(json.dumps({"<new>": 900}))
    else:
        config = json.loads((tmp_path / file).read_text())
        (tmp_path / file).write_text(json.dumps({**config, "added_tokens_decoder": {"900": token}}))
    with pytest.raises(BackboneError, match=rf"tokenizer\.json: it lacks 1 added tokens of {file}, such as '<new>'"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(("layout", "lower"), [("bert, vocab.txt", True), ("bert-cased, vocab.txt", False)])
def test_a_vocabulary_is_read_as_by_berts_own_code(layout: str, lower: bool, tmp_path: Path) -> None:
    """Which transformers keeps in Python."""
    PUBLISHED[layout](tmp_path)
    own, theirs = load_tokenizer(tmp_path), BertTokenizerLegacy(str(tmp_path / "vocab.txt"), do_lower_case=lower)
    for text in (*SPACES, *CHARACTERS):
        assert (text, list(own.encode(text).ids)) == (text, theirs(text)["input_ids"])


@pytest.mark.parametrize(
    ("with_json", "options"),
    # transformers 4 does not write the bytes of mDeBERTa's model into tokenizer.json.
    [(False, {}), (True, {}), (False, {"byte_fallback": True, "vocab_size": 400})],
    ids=["v3, spm.model", "v3, tokenizer.json", "mdeberta-v3, spm.model"],
)
def test_deberta_reads_texts_as_its_sentencepiece_model(with_json, options, tmp_path):
    """Between [CLS] 1 and [SEP] 2. transformers 5 has other ids for characters that NMT NFKC changes and NFC keeps."""
    model = write_deberta(tmp_path, with_json=with_json, **options)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.num_entries == model.get_piece_size() + 1
    for text in (*SPACES, *CHARACTERS):
        assert (text, tokenizer.encode(text).ids) == (text, (1, *model.encode(text), 2))


@pytest.mark.parametrize("layout", ["mpnet, vocab.txt", "roberta, vocab.json", "mdeberta-v3", "byt5"])
def test_a_written_tokenizer_reads_texts_as_its_files(layout: str, tmp_path: Path) -> None:
    """Of each kind of file, with the offsets."""
    if layout == "byt5":
        ByT5Tokenizer().save_pretrained(tmp_path)
    elif layout == "mdeberta-v3":
        write_deberta(tmp_path, with_json=False, byte_fallback=True, vocab_size=400)
    else:
        PUBLISHED[layout](tmp_path)
    (tmp_path / "new").mkdir()
    write_tokenizer(tmp_path, tmp_path / "new")
    ours, written = load_tokenizer(tmp_path), load_tokenizer(tmp_path / "new")
    for text in TEXTS:
        assert ours.encode(text, "bad") == written.encode(text, "bad")
        assert ours.read_windows(text, max_tokens=99) == written.read_windows(text, max_tokens=99)


def test_special_tokens_and_pairs_of_deberta_are_those_of_transformers(tmp_path: Path) -> None:
    """Where the texts have no characters that it reads otherwise."""
    write_deberta(tmp_path, with_json=False)
    tokenizer, theirs = load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.pad_id == theirs.pad_token_id
    for text in (*SPECIAL, "a good film", "Très"):
        for pair in (None, "bad", "[MASK]"):
            expected, found = theirs(text, pair), tokenizer.encode(text, pair)
            assert [list(found.ids), list(found.types)] == [expected["input_ids"], expected["token_type_ids"]]


def test_a_long_text_of_deberta_is_cut_as_the_whole_text_would_be(tmp_path: Path) -> None:
    """Although only its beginning is read."""
    model = write_deberta(tmp_path, with_json=False)
    text = "le ﬁlm\u00a0 très\n good " * 1000
    cut = load_tokenizer(tmp_path).encode(text, max_tokens=64)
    assert cut.unread
    assert cut.ids == (1, *model.encode(text)[:62], 2)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (
            {"vocab.txt": "[UNK]\na", "config.json": {"model_type": "deberta-v2"}},
            r"vocab\.txt: DebertaV2Tokenizer, the class that transformers takes, does not read this file",
        ),
        (
            {"vocab.json": {"a": 0}, "config.json": {"model_type": "roberta"}},
            r"vocab\.json: it needs merges\.txt beside it",
        ),
        (
            {
                "vocab.txt": "[UNK]\na",
                "config.json": {"model_type": "bert"},
                "tokenizer_config.json": {
                    "tokenizer_class": "BertJapaneseTokenizer",
                    "word_tokenizer_type": "basic",
                    "subword_tokenizer_type": "wordpiece",
                },
            },
            r"vocab\.txt: BertJapaneseTokenizer makes tokens by Python code",
        ),
    ],
)
def test_files_that_would_be_read_wrongly_are_refused(files, sentence, tmp_path):
    """transformers takes a made-up vocabulary, or no merges, without a word."""
    for name, content in files.items():
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(BackboneError, match=rf"^{tmp_path} has no readable tokenizer: {sentence}"):
        load_tokenizer(tmp_path)


def test_a_vocabulary_file_is_enough(tmp_path: Path):
    """Old checkpoints have vocab.txt and no tokenizer.json."""
    minilm = find_checkpoint("minilm")
    for name in ("vocab.txt", "config.json", "tokenizer_config.json"):
        shutil.copy(minilm / name, tmp_path)
    text = "A gem of a film."
    assert load_tokenizer(tmp_path).encode(text) == load_tokenizer(minilm).encode(text)


@pytest.mark.parametrize("file", ["tokenizer.json", "vocab.json", "spm.model"])
@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff", b"version https://git-lfs.github.com/spec/v1"])
def test_a_broken_tokenizer_is_refused(file: str, content: bytes, tmp_path: Path):
    """In one line with the directory and the file."""
    family = "deberta-v2" if file == "spm.model" else "roberta"
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / file).write_bytes(content)
    with pytest.raises(BackboneError, match=rf"^{tmp_path} has no readable tokenizer: {file}: .+$"):
        load_tokenizer(tmp_path)


def test_a_missing_tokenizer_is_refused(bert_directory: Path, tmp_path: Path):
    """By the files of which none is there."""
    shutil.copy(bert_directory / "config.json", tmp_path)
    with pytest.raises(BackboneError, match=r"has no readable tokenizer: none of tokenizer\.json, vocab\.txt"):
        load_tokenizer(tmp_path)


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
    monkeypatch.setattr(tokenizer_files, "find_spec", lambda name: None)
    (tmp_path / "spiece.model").write_bytes(_sentencepiece())
    with pytest.raises(BackboneError, match=r"spiece\.model alone needs transformers and sentencepiece and protobuf"):
        load_tokenizer(tmp_path)


def test_a_vocabulary_without_its_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It names the extra that installs what is missing."""
    monkeypatch.setattr(tokenizer_files, "find_spec", lambda name: None)
    shutil.copy(find_checkpoint("minilm") / "vocab.txt", tmp_path)
    with pytest.raises(BackboneError, match=r"vocab\.txt alone needs transformers, which pip install \"peltier\[con"):
        load_tokenizer(tmp_path)


WRITTEN = [*SPACES, "Öl 東京", "ж😀 le", "naïve \n ﬁ ½"]


@pytest.mark.parametrize(
    ("family", "first", "unknown", "ends"), [("xlm-roberta", 1, 3, (0, 2)), ("camembert", 4, 3, (5, 6))]
)
def test_a_fairseq_vocabulary_is_that_of_its_sentencepiece_model(family, first, unknown, ends, tmp_path):
    """XLM-RoBERTa and CamemBERT put tokens of fairseq before SentencePiece's pieces, and `<mask>` behind them: ids are
    SentencePiece's plus their number, a pair has two separators, and the ids of the ends are those of config.json."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    model = train_sentencepiece(tmp_path / "sentencepiece.bpe.model", vocab_size=90)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.num_entries == model.get_piece_size() + first + 1
    assert tokenizer.pad_id == 1
    for text in WRITTEN:
        own = [unknown if piece == 0 else piece + first for piece in model.encode(text)]
        assert tokenizer.encode(text).ids == (ends[0], *own, ends[1])
        assert tokenizer.encode(text, "bad").ids[: len(own) + 3] == (ends[0], *own, ends[1], ends[1])


@pytest.mark.parametrize(("family", "start", "unknown"), [("t5", -1, 2), ("mt5", -1, 2), ("umt5", 2, 3)])
def test_a_model_with_bytes_spells_unknown_characters(family: str, start: int, unknown: int, tmp_path: Path):
    """mT5's SentencePiece model has a piece for each byte, which transformers does not use: ids and texts are those of
    SentencePiece itself."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": 0}))
    special = {"pad_id": 0, "eos_id": 1, "unk_id": unknown, "bos_id": start}
    model = train_sentencepiece(tmp_path / "spiece.model", vocab_size=400, byte_fallback=True, **special)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.num_entries == model.get_piece_size()
    for text in WRITTEN:
        ids = tuple(model.encode(text))
        assert tokenizer.encode(text).ids == (*ids, 1)
        assert tokenizer.decode(ids) == model.decode(list(ids))
