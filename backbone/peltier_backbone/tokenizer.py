"""Text to token ids, without padding."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tokenizers import Encoding
from tokenizers import Tokenizer as FastTokenizer

from peltier_backbone.errors import BackboneError
from peltier_backbone.packing import Encoded
from peltier_backbone.prefix_tokens import is_local, num_open_chars, num_settled

_SHORT_CHARS = 1024
_PADS = ("[PAD]", "<pad>")
_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model")
# A prefix that is read begins with this many characters for each token that there is room for; most texts have five.
_CHARS_PER_TOKEN = 4
_GROWTH = 2


@dataclass(frozen=True)
class _Text:
    """The tokens of a text; `open` where they are only its first ones, and more follow."""

    encoding: Encoding
    open: bool = False

    def __len__(self) -> int:
        return len(self.encoding)


class Tokenizer:
    """A checkpoint's own tokenizer, safe to use from many threads: nothing in it changes after it is loaded."""

    def __init__(self, fast: FastTokenizer) -> None:
        fast.no_padding()
        fast.no_truncation()
        self._fast = fast
        self._is_local = is_local(fast)
        self._num_open_chars = num_open_chars(fast)

    @property
    def num_entries(self) -> int:
        """Ids are below this, added tokens included."""
        return max(self._fast.get_vocab(with_added_tokens=True).values()) + 1

    @property
    def max_token_bytes(self) -> int:
        """The most bytes of JSON that one token can add to a text."""
        return max(len(json.dumps(token, ensure_ascii=False).encode()) - 2 for token in self._fast.get_vocab())

    def encode(
        self, text: str, pair: str | None = None, *, max_tokens: int | None = None, max_chars: int | None = None
    ) -> Encoded:
        """Token ids and types of a text or a pair, with special tokens; `max_tokens` cuts the longer text first.

        Of each text at most `max_chars` characters are read. The row says how many tokens were dropped, and whether
        that is all: of a text that is much too long only the beginning is read, which gives the same row.
        """
        room = None
        if max_tokens is not None:
            room = max(max_tokens - self._fast.num_special_tokens_to_add(pair is not None), 0)
        first = self._read(text, room, max_chars)
        second = None if pair is None else self._read(pair, room, max_chars)
        num_dropped = 0
        if room is not None:
            if pair is not None and second is not None and not _is_order_known(first, second, room):
                first, second = self._read(text, None, max_chars), self._read(pair, None, max_chars)
            num_dropped = _truncate(first.encoding, second.encoding if second is not None else None, room)
        encoding = self._fast.post_process(first.encoding, second.encoding if second is not None else None)
        return Encoded(
            tuple(encoding.ids),
            tuple(encoding.type_ids),
            num_dropped=num_dropped,
            unread=first.open or (second is not None and second.open),
        )

    @property
    def pad_id(self) -> int | None:
        """What an encoder's rows are padded with; None where the vocabulary has no such token."""
        known = (self._fast.token_to_id(token) for token in _PADS)
        return next((one for one in known if one is not None), None)

    def ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a text without special tokens: what a decoder shall write."""
        return tuple(self._read_all(text).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; special tokens are left out."""
        return str(self._fast.decode(list(ids), skip_special_tokens=True))

    def _read(self, text: str, room: int | None, max_chars: int | None) -> _Text:
        """All tokens of a text, or where there is `room` for fewer, more of the first ones than that."""
        num_chars = len(text) if max_chars is None else min(len(text), max_chars)
        if room is not None and self._is_local:
            window = max(_SHORT_CHARS, _CHARS_PER_TOKEN * room) + self._num_open_chars
            while window * _GROWTH <= num_chars:
                encoding = self._fast.encode_batch([text[:window]], add_special_tokens=False)[0]
                settled = num_settled(encoding, window - self._num_open_chars)
                if settled > room:
                    encoding.truncate(settled)
                    return _Text(encoding, open=True)
                window *= _GROWTH
        return _Text(self._read_all(text[:num_chars]), open=num_chars < len(text))

    def _read_all(self, text: str) -> Encoding:
        if len(text) <= _SHORT_CHARS:
            return self._fast.encode(text, add_special_tokens=False)
        # Unlike `encode` it lets other threads run, for as many seconds as the text has megabytes, and skips offsets.
        return self._fast.encode_batch_fast([text], add_special_tokens=False)[0]


def _is_order_known(first: _Text, second: _Text, room: int) -> bool:
    """Whether it is known which text has more tokens, or makes no difference. It does for the last of an odd number, if
    each text has more than half of them."""
    if not (first.open or second.open) or room % 2 == 0 or min(len(first), len(second)) <= room // 2:
        return True
    if first.open and second.open:
        return False
    return len(first) <= len(second) if second.open else len(first) > len(second)


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
