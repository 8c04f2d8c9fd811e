"""Which tokens of a prefix of a text are also tokens of the whole text, for any continuation.

A tokenizer splits a text into words and reads each word by itself. If its normalizer and its pre-tokenizer treat a
character by the characters before it and a few after it, only the last words of a prefix depend on what follows. This
holds for these components:

- `BertNormalizer`, `Lowercase`: character by character; canonical reordering moves combining marks within a word.
- `NFC`, `NFD`, `NFKC`, `NFKD`, followed by words that end at spaces: they move and join characters within a word.
- `Precompiled` (SentencePiece): grapheme by grapheme; it reads a grapheme of six or more bytes by character.
- `Strip`, and `Replace` of spaces: they change runs of spaces; a prefix may end in such a run.
- `BertPreTokenizer`, `WhitespaceSplit`, `Metaspace`: a word ends at a space or at punctuation, or is one character.
- `ByteLevel`: a word is the longest run of one kind of characters. A run at the end may continue, and an apostrophe
  there may form a contraction with the letters after it, so up to three words may change.
- Added tokens, which are searched in the original text: one that crosses the end begins within its length of the end.
"""

import json
from collections.abc import Mapping
from typing import Any

from tokenizers import Encoding
from tokenizers import Tokenizer as FastTokenizer

_LOCAL_NORMALIZERS = frozenset({"BertNormalizer", "Lowercase", "Precompiled", "Strip"})
_UNICODE_FORMS = frozenset({"NFC", "NFD", "NFKC", "NFKD"})
_SPACES: tuple[Mapping[str, str], ...] = ({"Regex": " {2,}"}, {"String": " "})
# The pre-tokenizers of one tokenizer, in order; with those of `_SPACED`, words end only at spaces.
_SPACED = (("WhitespaceSplit",), ("Metaspace",), ("WhitespaceSplit", "Metaspace"))
_SPLITTERS = (*_SPACED, ("BertPreTokenizer",), ("ByteLevel",))
# The number of words at the end of a prefix that may differ in the whole text.
_OPEN_WORDS = 3
# A grapheme that is normalized as a whole has at most five bytes.
_OPEN_CHARS = 8


def is_local(fast: FastTokenizer) -> bool:
    """Whether this tokenizer guarantees that all but the last tokens of a prefix are tokens of the whole text."""
    normalizers = _parts(fast.normalizer, "normalizers")
    splitters = tuple(part["type"] for part in _parts(fast.pre_tokenizer, "pretokenizers"))
    kinds = _LOCAL_NORMALIZERS | _UNICODE_FORMS if splitters in _SPACED else _LOCAL_NORMALIZERS
    return (
        splitters in _SPLITTERS
        and all(part["type"] in kinds or _replaces_spaces(part) for part in normalizers)
        and not (normalizers and any(token.normalized for token in fast.get_added_tokens_decoder().values()))
        and not getattr(fast.model, "dropout", None)
    )


def num_open_chars(fast: FastTokenizer) -> int:
    """How many characters at the end of a prefix may be part of an added token, or of one grapheme."""
    added = fast.get_added_tokens_decoder().values()
    return max((len(token.content) for token in added), default=0) + _OPEN_CHARS


def num_settled(encoding: Encoding, num_chars: int) -> int:
    """The number of tokens that come before the last words of a prefix and end in its first `num_chars` characters."""
    words, offsets = encoding.word_ids, encoding.offsets
    count = len(words)
    for _ in range(_OPEN_WORDS):
        word = words[count - 1] if count else None
        while count and words[count - 1] == word:
            count -= 1
    while count and offsets[count - 1][1] > num_chars:
        count -= 1
    return count


def _parts(component: Any, key: str) -> list[dict[str, Any]]:
    """The state of a normalizer or pre-tokenizer, or of each part of a sequence of them."""
    if component is None:
        return []
    state: dict[str, Any] = json.loads(component.__getstate__())
    parts: list[dict[str, Any]] = state[key] if state["type"] == "Sequence" else [state]
    return parts


def _replaces_spaces(part: Mapping[str, Any]) -> bool:
    return part["type"] == "Replace" and part["pattern"] in _SPACES
