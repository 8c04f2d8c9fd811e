"""Text to token ids, without padding."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tokenizers import Encoding
from tokenizers import Tokenizer as FastTokenizer

from peltier_backbone.errors import BackboneError
from peltier_backbone.packing import Encoded

_SHORT_CHARS = 4096
_PADS = ("[PAD]", "<pad>")
_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model")


class Tokenizer:
    """A checkpoint's own tokenizer, safe to use from many threads: nothing in it changes after it is loaded."""

    def __init__(self, fast: FastTokenizer) -> None:
        fast.no_padding()
        fast.no_truncation()
        self._fast = fast

    @property
    def num_entries(self) -> int:
        """Ids are below this, added tokens included."""
        return max(self._fast.get_vocab(with_added_tokens=True).values()) + 1

    @property
    def max_token_bytes(self) -> int:
        """The most bytes of JSON that one token can add to a text."""
        return max(len(json.dumps(token, ensure_ascii=False).encode()) - 2 for token in self._fast.get_vocab())

    def encode(self, text: str, pair: str | None = None, *, max_tokens: int | None = None) -> Encoded:
        """Token ids and types of a text or a pair, with special tokens; `max_tokens` cuts the longer text first.

        The row says how many tokens were dropped.
        """
        first = self._read(text)
        second = None if pair is None else self._read(pair)
        num_dropped = 0
        if max_tokens is not None:
            room = max(max_tokens - self._fast.num_special_tokens_to_add(pair is not None), 0)
            num_dropped = _truncate(first, second, room)
        encoding = self._fast.post_process(first, second)
        return Encoded(tuple(encoding.ids), tuple(encoding.type_ids), num_dropped=num_dropped)

    @property
    def pad_id(self) -> int | None:
        """What an encoder's rows are padded with; None where the vocabulary has no such token."""
        known = (self._fast.token_to_id(token) for token in _PADS)
        return next((one for one in known if one is not None), None)

    def ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a text without special tokens: what a decoder shall write."""
        return tuple(self._read(text).ids)

    def _read(self, text: str) -> Encoding:
        if len(text) <= _SHORT_CHARS:
            return self._fast.encode(text, add_special_tokens=False)
        # Unlike `encode` it lets other threads run, for as many seconds as the text has megabytes, and skips offsets.
        return self._fast.encode_batch_fast([text], add_special_tokens=False)[0]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; special tokens are left out."""
        return str(self._fast.decode(list(ids), skip_special_tokens=True))


def _truncate(first: Encoding, second: Encoding | None, room: int) -> int:
    """Leaves `room` tokens of both texts together; returns how many that drops."""
    num_tokens = len(first) + (len(second) if second else 0)
    if num_tokens <= room:
        return 0
    lengths = _longest_first(len(first), len(second) if second else 0, room)
    first.truncate(lengths[0])
    if second:
        second.truncate(lengths[1])
    return num_tokens - sum(lengths)


def _longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Lengths of both texts when one token after the other is taken from the longer text until `room` is kept."""
    half = room // 2
    if first <= second:
        shorter = min(first, half)
        return shorter, room - shorter
    shorter = min(second, half)
    return room - shorter, shorter


def load_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer in `directory`: its `tokenizer.json`, else converted from the slow files by transformers."""
    path = directory / "tokenizer.json"
    if not any((directory / name).is_file() for name in _FILES):
        # transformers would make up an empty vocabulary here
        raise BackboneError(f"{directory} has no readable tokenizer: none of {', '.join(_FILES)}")
    if not any((directory / name).is_file() for name in _FILES[:-1]) and find_spec("sentencepiece") is None:
        # transformers would ask for another package
        raise BackboneError(
            f"{directory} has no readable tokenizer: spiece.model alone needs the package sentencepiece, which is not "
            "installed; transformers saves the same tokenizer as tokenizer.json"
        )
    try:
        if path.is_file():
            return Tokenizer(FastTokenizer.from_file(str(path)))
        from transformers import AutoTokenizer

        return Tokenizer(AutoTokenizer.from_pretrained(directory, local_files_only=True).backend_tokenizer)
    except Exception as error:  # tokenizers raises bare Exception, transformers many kinds
        raise BackboneError(f"{directory} has no readable tokenizer: {error}") from error
