"""Text that is sent while its tokens are still coming."""

from collections.abc import Sequence
from functools import cached_property

from peltier_backbone.tokenizer import Tokenizer

# What stands for bytes that are no character, or none yet.
_NOT_YET = "\N{REPLACEMENT CHARACTER}"
# Of four bytes, and in no vocabulary: a tokenizer that can spell bytes spells this with them.
_RARE = "\U0010fffd"


class Detokenizer:
    """Takes tokens and gives pieces of text that together are the text of all tokens; a piece is never taken back.

    Held back are characters of which not all bytes have come, and tokens that are single bytes until one with text of
    its own follows: a tokenizer with byte fallback replaces a whole run of bytes if it does not end as a character.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._sent = ""

    def push(self, ids: Sequence[int]) -> str:
        """What is certain now and was not before, often nothing."""
        self._ids += ids
        settled = len(self._ids)
        while settled and self._is_open(self._ids[settled - 1]):
            settled -= 1
        return self._send(self._tokenizer.decode(self._ids[:settled]).rstrip(_NOT_YET))

    def end(self, text: str) -> str:
        """What has been held back of the whole `text`."""
        return self._send(text)

    def _send(self, text: str) -> str:
        if not text.startswith(self._sent):
            return ""
        piece = text[len(self._sent) :]
        self._sent = text
        return piece

    def _is_open(self, token: int) -> bool:
        """A byte that comes next would join it: it is a byte itself, or a special token, which leaves no trace."""
        lead = self._lead_byte
        return lead is not None and not self._tokenizer.decode([token, lead]).strip(_NOT_YET)

    @cached_property
    def _lead_byte(self) -> int | None:
        """The token of a byte that begins a character, None where the tokenizer cannot spell bytes."""
        return next((one for one in self._tokenizer.ids(_RARE) if self._tokenizer.decode([one]) == _NOT_YET), None)
