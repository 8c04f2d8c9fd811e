"""Tokens that are bytes: the tokenizer of ByT5, which has only those of UTF-8 (Xue and others, ByT5, arXiv 2105.13626,
section 3.1)."""

import json
from pathlib import Path

from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer

# Its checkpoints have no file with a vocabulary.
BYTE_TOKENIZER_FILE = "tokenizer_config.json"
_CLASS = "ByT5Tokenizer"


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
