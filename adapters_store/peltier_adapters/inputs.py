"""Tokenises the inputs of a task."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.token_places import Span, number_words
from peltier_backbone.text.tokenizer import Tokenizer

from peltier_adapters.artifact.manifest import TaskInput
from peltier_adapters.errors import InputError
from peltier_adapters.spec.tasks import TaskSpec
from peltier_adapters.spec.text_rules import is_plain, is_visible

_FORMS = {1: "one text", 2: "a pair of texts [text, pair]", 3: "three texts [text, pair, third]"}


class Reader(Protocol):
    """The config and tokenizer of a backbone, with or without its weights."""

    @property
    def config(self) -> BackboneConfig: ...

    @property
    def tokenizer(self) -> Tokenizer: ...


class LongTexts(NamedTuple):
    """What happens to texts that are too long: whether they are truncated or refused, the `stride` of their windows, if
    any, the number of characters that are read at most, and the number of windows that one may have."""

    truncate: bool = True
    stride: int | None = None
    max_chars: int | None = None
    max_windows: int | None = None


class TooManyWindows(Exception):
    """A text has `excess` more windows than are allowed."""

    def __init__(self, excess: int) -> None:
        super().__init__(f"the text has {excess} more windows than allowed")
        self.excess = excess


_TRUNCATED = LongTexts()


def encode_input(
    backbone: Reader, task: TaskSpec, value: TaskInput, *, truncate: bool = True, max_chars: int | None = None
) -> Encoded:
    """Tokenises one input of a task as one row; an `InputError` says why it does not fit. Reads at most `max_chars`
    characters of each rendered text. For a task that reads tokens, the row has offsets in the last text."""
    if task.reads_tokens:
        return encode_windows(backbone, task, value, LongTexts(truncate, max_chars=max_chars))[0]
    rendered = _render(backbone.tokenizer, task, value, max_chars)
    encoded = backbone.tokenizer.encode(*rendered, max_tokens=task.max_length, max_chars=max_chars)
    if encoded.truncated and not truncate:
        raise InputError(_too_long(encoded, task, max(map(len, rendered)), max_chars))
    return _checked(encoded, backbone, task)


def encode_windows(
    backbone: Reader, task: TaskSpec, value: TaskInput, how: LongTexts = _TRUNCATED
) -> tuple[Encoded, ...]:
    """Tokenises one input of a task that reads tokens: one row for each window of its last text. Raises the errors of
    `encode_input`, and `TooManyWindows` before it makes several rows that are more than `how` allows."""
    rendered = _render(backbone.tokenizer, task, value, how.max_chars)
    read = backbone.tokenizer.read_windows(
        *rendered, max_tokens=task.max_length, stride=how.stride, max_chars=how.max_chars
    )
    if how.max_windows is not None and 1 < len(read) > how.max_windows:
        raise TooManyWindows(len(read) - how.max_windows)
    rows = read.rows()
    if rows[0].truncated and not how.truncate:
        raise InputError(_too_long(rows[0], task, max(map(len, rendered)), how.max_chars))
    return tuple(_checked(row, backbone, task) for row in rows)


def at_words(rows: Sequence[Encoded], words: Sequence[Span]) -> tuple[Encoded, ...]:
    """Windows with the numbers of given words, characters [start, end), in place of the tokenizer's."""
    return tuple(replace(row, words=number_words(row.offsets, words)) for row in rows)


def _render(tokenizer: Tokenizer, task: TaskSpec, value: TaskInput, max_chars: int | None) -> tuple[str, ...]:
    """The texts to tokenise, each of which has something that is read."""
    texts = (value,) if isinstance(value, str) else value
    if len(texts) != task.num_texts:
        raise InputError(f"the input is {_FORMS[len(texts)]}; this task takes {_FORMS[task.num_texts]}")
    for text in texts:
        _check_text(tokenizer, text, max_chars)
    return task.render(*texts)


def _checked(encoded: Encoded, backbone: Reader, task: TaskSpec) -> Encoded:
    """The row with its padding. Raises an `InputError` if the special tokens alone are too many."""
    if len(encoded) > task.max_length:
        raise InputError(f"the input has {len(encoded)} tokens; this task takes at most {task.max_length}")
    return _padded(encoded, backbone, task) if task.padded else encoded


def encode_known(backbone: Reader, task: TaskSpec, value: TaskInput, *, max_chars: int | None = None) -> Encoded | None:
    """`encode_input` for a text of words that the tokenizer has read before; None if `encode_input` has to read the
    input, which takes ten times as long."""
    if task.inputs != "single" or task.reads_tokens or task.template is not None:
        return None
    if not isinstance(value, str) or not value.strip():
        return None
    encoded = backbone.tokenizer.encode_known(value, max_tokens=task.max_length, max_chars=max_chars)
    return _padded(encoded, backbone, task) if encoded is not None and task.padded else encoded


def _too_long(encoded: Encoded, task: TaskSpec, num_chars: int, max_chars: int | None) -> str:
    num_tokens = len(encoded) + encoded.num_dropped
    if num_tokens > task.max_length:
        found = f"more than {task.max_length}" if encoded.unread else num_tokens
        return f"the input has {found} tokens; this task takes at most {task.max_length}"
    return f"the input has a text of {num_chars} characters; at most {max_chars} are read"


def _padded(encoded: Encoded, backbone: Reader, task: TaskSpec) -> Encoded:
    pad = backbone.tokenizer.pad_id
    if pad is None:
        raise InputError("this task pads its inputs, and the backbone's tokenizer has no pad token")
    return encoded.padded(task.max_length, pad)


def _check_text(tokenizer: Tokenizer, text: str, max_chars: int | None) -> None:
    read = text[:max_chars]
    if not is_visible(read):
        if is_visible(text):
            rule = "all that are read of it, have none that is visible"
            raise InputError(f"the first {max_chars} characters of an input text, {rule}")
        raise InputError("an input text is empty; every text must have at least one visible character")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        wrong = text[error.start]
        raise InputError(f"an input text has a lone surrogate {wrong!r} at character {error.start}") from None
    if not is_plain(read) and not tokenizer.ids(read):
        raise InputError("an input text has no tokens: the backbone's tokenizer drops all of its characters")
