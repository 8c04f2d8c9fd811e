"""Text to token ids, without padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Encoding
from tokenizers import Tokenizer as FastTokenizer

from peltier_backbone.text.known_words import KnownWords, reads_words_apart
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.prefix_tokens import is_local, num_open_chars, num_settled
from peltier_backbone.text.token_places import place_tokens
from peltier_backbone.text.tokenizer_files import read_tokenizer
from peltier_backbone.text.windows import RowFrame, WindowedText, window_starts

_SHORT_CHARS = 1024
_PADS = ("[PAD]", "<pad>")
_UNKNOWN = ("[UNK]", "<unk>")
# The tokenizer first reads this many characters for each token that fits; most texts have five per token.
_CHARS_PER_TOKEN = 4
_GROWTH = 2


@dataclass(frozen=True)
class _Text:
    """The tokens of a text; `open` if they are only its first tokens."""

    encoding: Encoding
    open: bool = False

    def __len__(self) -> int:
        return len(self.encoding)


class Tokenizer:
    """A checkpoint's tokenizer. Many threads may use it."""

    def __init__(self, fast: FastTokenizer) -> None:
        fast.no_padding()
        fast.no_truncation()
        self._fast = fast
        self._is_local = is_local(fast)
        self._num_open_chars = num_open_chars(fast)
        self._known_words = KnownWords(fast) if reads_words_apart(fast) else None
        self._word_prefix: str | None = getattr(fast.model, "continuing_subword_prefix", None) or None

    @property
    def num_entries(self) -> int:
        """The number above all token ids, with added tokens."""
        return max(self._fast.get_vocab(with_added_tokens=True).values()) + 1

    def encode(
        self, text: str, pair: str | None = None, *, max_tokens: int | None = None, max_chars: int | None = None
    ) -> Encoded:
        """Token ids and types of a text or a pair, with special tokens; `max_tokens` cuts the longer text first.

        The tokenizer reads at most `max_chars` characters of each text. The row has the number of dropped tokens, and
        `unread` if that is not all: of a much too long text only the beginning is read, which gives the same row.
        """
        if pair is None and self._known_words is not None and _is_short(text, max_chars):
            known = _fitting(self._known_words.encode(text), max_tokens)
            if known is not None:
                return known
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

    def read_windows(
        self,
        text: str,
        pair: str | None = None,
        *,
        max_tokens: int,
        stride: int | None = None,
        max_chars: int | None = None,
    ) -> WindowedText:
        """The rows of a text, or of the pair of a question `text` and a context `pair`, with offsets in the last text.

        With `stride`, a text of more than `max_tokens` tokens becomes several rows; neighbours share `stride` of its
        tokens, and at most half of those that fit. Without, one row has its first tokens, as in `encode`. The question
        is in every row, with at most half of the tokens that fit. If no token of the text fits, there is one row.
        """
        room = max(max_tokens - self._fast.num_special_tokens_to_add(pair is not None), 0)
        question, num_dropped = None, 0
        if pair is not None:
            question = self._read_all(text if max_chars is None else text[:max_chars])
            num_dropped = max(len(question) - room // 2, 0)
            question.truncate(room // 2)
            room -= len(question)
        text = text if pair is None else pair
        stride = stride if room else None  # without room, more windows would have no tokens either
        read = self._read(text, room if stride is None else None, max_chars, placed=True)
        frame = RowFrame.create(self._fast, question, read.encoding)
        places = place_tokens(read.encoding, text, self._word_prefix)
        starts = (0,) if stride is None else window_starts(len(read), room, min(stride, room // 2))
        ids = read.encoding.ids  # `tokenizers` makes the whole list at each access
        num_dropped += 0 if stride is not None else max(len(read) - room, 0)
        return WindowedText(frame, ids, places, starts, room, num_dropped, unread=read.open)

    def encode_known(self, text: str, *, max_tokens: int | None = None, max_chars: int | None = None) -> Encoded | None:
        """The row of a short text of words that were read before, if it need not be truncated. If it is None, `encode`
        takes ten times as long."""
        if self._known_words is None or not _is_short(text, max_chars):
            return None
        return _fitting(self._known_words.find(text), max_tokens)

    @property
    def pad_id(self) -> int | None:
        """The id of the token that pads an encoder's rows; None if the vocabulary has no such token."""
        # MPNet's vocabulary has BERT's token too, which is no special token there.
        special = {token.content for token in self._fast.get_added_tokens_decoder().values()}
        known = (self._fast.token_to_id(token) for token in sorted(_PADS, key=lambda token: token not in special))
        return next((one for one in known if one is not None), None)

    @property
    def unknown_ids(self) -> frozenset[int]:
        """The ids of the tokens that stand for what the vocabulary lacks."""
        return frozenset(one for token in _UNKNOWN if (one := self._fast.token_to_id(token)) is not None)

    def ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a text without special tokens, as a decoder's target."""
        return tuple(self._read_all(text).ids)

    def token(self, number: int) -> str:
        """The entry of the vocabulary with this number; empty if the model has embeddings beyond the vocabulary."""
        return self._fast.id_to_token(number) or ""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens."""
        return str(self._fast.decode(list(ids), skip_special_tokens=True))

    def _read(self, text: str, room: int | None, max_chars: int | None, *, placed: bool = False) -> _Text:
        """All tokens of a text; or, if only `room` tokens fit, at least more than `room` of its first tokens. They have
        offsets if they are `placed`."""
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
        return _Text(self._read_all(text[:num_chars], placed=placed), open=num_chars < len(text))

    def _read_all(self, text: str, *, placed: bool = False) -> Encoding:
        if len(text) <= _SHORT_CHARS:
            return self._fast.encode(text, add_special_tokens=False)
        if placed:
            return self._fast.encode_batch([text], add_special_tokens=False)[0]
        # Unlike `encode`, this call lets other threads run and skips offsets. It takes a second per megabyte of text.
        return self._fast.encode_batch_fast([text], add_special_tokens=False)[0]


def _is_short(text: str, max_chars: int | None) -> bool:
    return len(text) <= _SHORT_CHARS and (max_chars is None or len(text) <= max_chars)


def _fitting(ids: tuple[int, ...] | None, max_tokens: int | None) -> Encoded | None:
    """The row of the tokens of a single text, if it need not be truncated."""
    if ids is None or (max_tokens is not None and len(ids) > max_tokens):
        return None
    return Encoded(ids, (0,) * len(ids))


def _is_order_known(first: _Text, second: _Text, room: int) -> bool:
    """Whether it is known which text has more tokens, or does not matter. It matters only if `room` is odd and each
    text has more than half of `room` tokens: it then decides which text gets the last one."""
    if not (first.open or second.open) or room % 2 == 0 or min(len(first), len(second)) <= room // 2:
        return True
    if first.open and second.open:
        return False
    return len(first) <= len(second) if second.open else len(first) > len(second)


def _truncate(first: Encoding, second: Encoding | None, room: int) -> int:
    """Truncate both texts to `room` tokens together; returns the number of dropped tokens."""
    num_tokens = len(first) + (len(second) if second else 0)
    if num_tokens <= room:
        return 0
    lengths = _longest_first(len(first), len(second) if second else 0, room)
    first.truncate(lengths[0])
    if second:
        second.truncate(lengths[1])
    return num_tokens - sum(lengths)


def _longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """The lengths of both texts after tokens are dropped one by one from the longer text until `room` are left."""
    half = room // 2
    if first <= second:
        shorter = min(first, half)
        return shorter, room - shorter
    shorter = min(second, half)
    return room - shorter, shorter


def load_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer of the checkpoint in `directory`. Raises a `BackboneError`."""
    return Tokenizer(read_tokenizer(directory))
