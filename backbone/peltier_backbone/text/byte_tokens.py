"""Tokens that are bytes: the tokenizer of ByT5, which has only those of UTF-8 (Xue and others, ByT5, arXiv 2105.13626,
section 3.1), and bytes for characters that a SentencePiece model has no piece for, as mT5's has."""

import json
from pathlib import Path

from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer

# Its checkpoints have no file with a vocabulary.
BYTE_TOKENIZER_FILE = "tokenizer_config.json"
_CLASS = "ByT5Tokenizer"
_BYTE_PIECES = {f"<0x{byte:02X}>" for byte in range(256)}


def has_byte_tokenizer(directory: Path) -> bool:
    """Whether the directory's `tokenizer_config.json` names ByT5's tokenizer."""
    path = directory / BYTE_TOKENIZER_FILE
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("tokenizer_class") == _CLASS


def read_byte_tokenizer(directory: Path) -> FastTokenizer:
    """ByT5's tokenizer with the special tokens of the directory. The ids of bytes follow those of `<pad>`, `</s>` and
    `<unk>`. Raises what transformers raises."""
    from transformers import ByT5Tokenizer

    slow = ByT5Tokenizer.from_pretrained(directory, local_files_only=True)
    special = sorted(slow.added_tokens_decoder.items())
    vocabulary = {token.content: number for number, token in special if number < slow.offset}
    vocabulary |= {character: byte + slow.offset for byte, character in _byte_characters().items()}
    fast = FastTokenizer(models.BPE(vocab=vocabulary, merges=[]))
    fast.add_special_tokens(
        [AddedToken(one.content, lstrip=one.lstrip, rstrip=one.rstrip, normalized=False) for _, one in special]
    )
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    fast.decoder = decoders.ByteLevel()
    end = slow.eos_token
    fast.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, slow.eos_token_id)]
    )
    return fast


def _byte_characters() -> dict[int, str]:
    """The character by which `tokenizers` writes each byte: itself if it is printable; the others are the characters
    above 255, in order (Radford and others, Language models are unsupervised multitask learners, 2019, section 2.2)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    printable = {ord(character): character for character in alphabet if ord(character) < 256}
    others = (byte for byte in range(256) if byte not in printable)
    return printable | dict(zip(others, alphabet[len(printable) :], strict=True))


def with_byte_fallback(fast: FastTokenizer) -> FastTokenizer:
    """A converted tokenizer that spells characters without a piece by bytes, if its vocabulary has a piece for each
    byte. SentencePiece does so; the conversion in transformers makes them unknown tokens."""
    if not fast.get_vocab().keys() >= _BYTE_PIECES:
        return fast
    state = json.loads(fast.to_str())
    if state["model"].get("byte_fallback") is not False:
        return fast
    state["model"]["byte_fallback"] = True
    state["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, state["decoder"]]}
    return FastTokenizer.from_str(json.dumps(state))
