"""Tokenizers of the kinds that ModernBERT and mmBERT publish, with small vocabularies."""

from pathlib import Path

import pytest
from peltier_backbone.text.tokenizer import load_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

TEXTS = ("a good film", "", "Déjà-vu , e\u0301 ☃ \n\t x", "good film " * 300)


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
    for text in TEXTS:
        for pair in (None, "a film"):
            found = own.encode(text, pair)
            assert found.ids == tuple(fast.encode(text, pair).ids)
            assert not any(found.types)
            fast.enable_truncation(20, strategy="longest_first")
            assert own.encode(text, pair, max_tokens=20).ids == tuple(fast.encode(text, pair).ids)
            fast.no_truncation()
