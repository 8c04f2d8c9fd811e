"""Decodes tokens to text while the model still generates tokens."""

from collections.abc import Sequence
from functools import cached_property

from peltier_backbone.text.tokenizer import Tokenizer

# `decode` writes this character for bytes that are not, or not yet, a valid character.
_NOT_YET = "\N{REPLACEMENT CHARACTER}"
# A character of four bytes that is in no vocabulary, so a tokenizer with byte fallback encodes it as bytes.
_RARE = "\U0010fffd"


class Detokenizer:
    """Takes tokens and returns pieces of text. Joined, the pieces are the text of all tokens. A piece never changes.

    It holds back incomplete characters, and single-byte tokens until a token with other text follows. The reason is
    that a tokenizer with byte fallback replaces a whole run of bytes if the run does not end with a complete character.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._sent = ""

    def push(self, ids: Sequence[int]) -> str:
        """Adds tokens and returns the text that has become certain, which may be empty."""
        self._ids += ids
        settled = len(self._ids)
        while settled and self._is_open(self._ids[settled - 1]):
            settled -= 1
        return self._send(self._tokenizer.decode(self._ids[:settled]).rstrip(_NOT_YET))

    def end(self, text: str) -> str:
        """The rest of `text`, the text of all tokens, that has not been returned yet."""
        return self._send(text)

    def _send(self, text: str) -> str:
        if not text.startswith(self._sent):
            return ""
        piece = text[len(self._sent) :]
        self._sent = text
        return piece

    def _is_open(self, token: int) -> bool:
        """Whether a following byte could change the text of `token`: it is a byte, or a special token without text."""
        lead = self._lead_byte
        return lead is not None and not self._tokenizer.decode([token, lead]).strip(_NOT_YET)

    @cached_property
    def _lead_byte(self) -> int | None:
        """The token of a byte that begins a character; None if the tokenizer has no byte tokens."""
        return next((one for one in self._tokenizer.ids(_RARE) if self._tokenizer.decode([one]) == _NOT_YET), None)
