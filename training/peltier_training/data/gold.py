"""The right entities and answers of a text: spans of its characters. Imports no torch."""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, NamedTuple

from peltier_adapters.answers.tags import OUTSIDE, has_prefix, join_tags
from peltier_backbone.text.token_places import Span

from peltier_training.data.examples import Example, OfWords
from peltier_training.data.label_names import label_name
from peltier_training.errors import TrainingError, shown

_FORM = '[{"start": 0, "end": 5, "label": "person"}]'
_MAX_NAMES = 10
_LOWER = ("b-", "i-")
_POSITION = re.compile(r"0|[1-9][0-9]{0,8}")
_FORMS = 'an object such as {"text": ["1976"], "answer_start": [97]}, with empty lists for no answer'
_WORD = re.compile(r"\S+")
_UNITS = (("UTF-16 code units", "utf-16-le", 2), ("bytes of UTF-8", "utf-8", 1))


class GoldEntity(NamedTuple):
    """A part of a text, its characters [start, end), and its label."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Tagged:
    """The entities of a text in order, and the characters of its words with their tags; None if the words are the
    tokenizer's."""

    entities: tuple[GoldEntity, ...]
    words: tuple[Span, ...] | None = None
    tags: tuple[str, ...] = ()


def read_tagged(text: Any, cell: Any, names: Sequence[str] | None, *, positions: bool = False) -> Tagged:
    """The entities in the cell of a text. `names` are allowed tags or labels, None for any; with `positions` an integer
    is the position of a tag in them. Raises a `TrainingError` for a cell that cannot be read."""
    placed = names if names is not None and positions and OUTSIDE in names else ()
    tagged = _of_words(cell, placed) if isinstance(cell, OfWords) else _of_text(text, cell)
    _check_labels(tagged, names)
    return tagged


def tag_names(examples: Sequence[Example], given: Sequence[str] | None) -> tuple[str, ...]:
    """The tags of a task in the order of its outputs: those of BIO, for the labels that the user gave, or for those of
    the examples in alphabetical order."""
    labels = entity_labels([_checked_tag(name) for name in given or ()])
    if given is None:
        labels = sorted({entity.label for example in examples for entity in example.label.entities})
    if not labels:
        raise TrainingError("token-classification needs at least one entity in the training rows")
    tags = (OUTSIDE, *(f"{prefix}-{label}" for label in labels for prefix in "BI"))
    return tuple(given) if given is not None and set(given) == set(tags) else tags


def entity_labels(names: Sequence[str]) -> list[str]:
    """The labels of entities, from tags such as `B-person` or from labels."""
    has_tags = any(map(has_prefix, names))
    own = [name[2:] if has_tags and has_prefix(name) else name for name in names if name != OUTSIDE]
    return list(dict.fromkeys(own))


def word_tags(words: Sequence[Span], entities: Sequence[GoldEntity]) -> list[str]:
    """The BIO tag of each word: that of the first entity that has a character of it."""
    tags, last = [], None
    for start, end in words:
        own = next((entity for entity in entities if entity.start < end and start < entity.end), None)
        tags.append(OUTSIDE if own is None else f"{'I' if own is last else 'B'}-{own.label}")
        last = own
    return tags


def tagged_entities(words: Sequence[Span], tags: Sequence[str]) -> tuple[GoldEntity, ...]:
    """The entities of tagged words; tags are of BIO, IO, BILOU or BIOES."""
    return tuple(GoldEntity(words[first][0], words[last - 1][1], label) for first, last, label in join_tags(tags))


def _of_words(own: OfWords, placed: Sequence[str]) -> Tagged:
    cell = _parsed(own.cell)
    if isinstance(cell, list) and cell and all(isinstance(one, dict) for one in cell):
        raise TrainingError("entities need a text; this row has a list of words, so give one tag per word")
    if not isinstance(cell, list):
        raise TrainingError(f"tags {shown(cell)} cannot be read; a list of words has a list of tags")
    tags = [_tag(one, placed) for one in cell]
    if len(tags) != len(own.words):
        raise TrainingError(f"there are {len(tags)} tags for {len(own.words)} words")
    bare = next((tag for tag in tags if tag != OUTSIDE and not has_prefix(tag)), None)
    if bare is not None and (prefixed := next((tag for tag in tags if has_prefix(tag)), None)) is not None:
        raise TrainingError(f"tag {bare!r} has no prefix and tag {prefixed!r} has one; use one scheme of tags")
    return Tagged(tagged_entities(own.words, tags), own.words, tuple(tags))


def _tag(tag: Any, placed: Sequence[str]) -> str:
    """A tag by its name, or by its position in `placed`, which is empty if integers are none."""
    if isinstance(tag, str) and tag.strip():
        name = tag.strip()
        if not placed or name in placed or not _POSITION.fullmatch(name):
            return _checked_tag(name)
        tag = int(name)
    if (number := _whole(tag)) is not None:
        if str(number) in placed:
            return str(number)
        if 0 <= number < len(placed):
            return placed[number]
        raise TrainingError(f"tag {number} is not a position in the tags; name them by --labels O,B-person,I-person,…")
    raise TrainingError(f"tag {shown(tag)} is not a tag; it must be a text such as 'B-person'")


def _whole(value: Any) -> int | None:
    """A whole number; pandas writes those of a column with a hole as floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _checked_tag(tag: str) -> str:
    """Refuses tags in lower case, which would be labels."""
    if tag == OUTSIDE.lower():
        raise TrainingError(f"tag {tag!r} would be a label; write {OUTSIDE!r} for a word that is in no entity")
    if tag.startswith(_LOWER) and len(tag) > 2:
        upper, own = tag[0].upper() + tag[1:], f"I-{tag}"
        raise TrainingError(f"tag {tag!r} would be a label; write {upper!r}, or {own!r} if {tag!r} is the label")
    return tag


def _of_text(text: Any, cell: Any) -> Tagged:
    cell = _parsed(cell)
    if isinstance(cell, list) and any(isinstance(one, str) for one in cell):
        raise TrainingError(f"tags need a list of words; this row has a text, so give entities such as {_FORM}")
    if not isinstance(cell, list) or not isinstance(text, str):
        raise TrainingError(f"entities {shown(cell)} cannot be read; they must be a list such as {_FORM}")
    entities = sorted(_entity(one, text) for one in cell)
    for first, second in pairwise(entities):
        if second.start < first.end:
            raise TrainingError(
                f"entities {first.label!r} from character {first.start} to {first.end} and {second.label!r} from "
                f"{second.start} to {second.end} overlap; a word has one label"
            )
    return Tagged(tuple(entities))


def _entity(one: Any, text: str) -> GoldEntity:
    start, end, label = (one.get(name) if isinstance(one, dict) else None for name in ("start", "end", "label"))
    numbers = [place for place in map(_whole, (start, end)) if place is not None]
    if len(numbers) < 2 or not _is_named(label):
        raise TrainingError(f"entity {shown(one)} cannot be read; it must be an object as in {_FORM}")
    (first, last), name, own = numbers, label_name(label), one.get("text")
    what = f"entity {shown(name)} from character {first} to {last}"
    if not 0 <= first < last <= len(text):
        raise TrainingError(f"{what} is not in the text, which has {len(text)} characters{_hint(text, numbers, own)}")
    if isinstance(own, str) and folded(text[first:last]) != folded(own):
        raise TrainingError(f"{what} is {shown(text[first:last])} in the text{_hint(text, numbers, own)}")
    if not text[first:last].strip():
        raise TrainingError(f"{what} has only spaces")
    return GoldEntity(first, last, name)


def _hint(text: str, span: Sequence[int], own: object) -> str:
    """A clause about an entity that is not at its characters; `own` is its text, if it has one."""
    first, last = span
    if isinstance(own, str) and own:
        return f"; its text {shown(own)} is {find_piece(text, first, last, own)}"
    unit = unit_of(text, last) if 0 <= first < last else None
    return f"; {unit} may have been counted, and offsets are in characters" if unit else ""


def _is_named(label: Any) -> bool:
    return isinstance(label, str | int | float) and bool(str(label).strip())


def _parsed(cell: Any) -> Any:
    try:
        return json.loads(cell) if isinstance(cell, str) else cell
    except (ValueError, RecursionError):
        return cell


def _check_labels(tagged: Tagged, names: Sequence[str] | None) -> None:
    if names is None:
        return
    labels = entity_labels(names)
    wrong = next((entity.label for entity in tagged.entities if entity.label not in labels), None)
    if wrong is not None:
        listed = ", ".join(labels[:_MAX_NAMES]) + (", …" if len(labels) > _MAX_NAMES else "")
        raise TrainingError(f"label {shown(wrong)} is not one of the task's {len(labels)} labels of entities: {listed}")


def describe_entities(text: str, entities: Sequence[GoldEntity]) -> Iterator[str]:
    for entity in entities:
        yield f"{entity.label}: {text[entity.start : entity.end]}"


class GoldSpan(NamedTuple):
    """A right answer: its text, and its first character in the context."""

    start: int
    text: str


def read_gold_spans(cell: Any, context: str) -> tuple[GoldSpan, ...]:
    """The right answers in a cell; none for a question that the context does not answer.

    The cell is `{"text": [...], "answer_start": [...]}`, the list of `{"text": ..., "answer_start": ...}` that SQuAD's
    own file has, or either as JSON in a text. Raises a `TrainingError` for an answer that is not in the context there.
    """
    return tuple(_placed(span, context) for span in _spans(_parsed(cell)))


def _spans(cell: Any) -> Iterator[GoldSpan]:
    if isinstance(cell, dict):
        texts, starts = cell.get("text"), cell.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list):
            raise _unreadable(cell)
        if len(texts) != len(starts):
            raise TrainingError(f"answers {shown(cell)} have {len(texts)} texts and {len(starts)} starts")
        pairs = list(zip(texts, starts, strict=True))
    elif isinstance(cell, list) and all(isinstance(one, dict) for one in cell):
        pairs = [(one.get("text"), one.get("answer_start")) for one in cell]
    else:
        raise _unreadable(cell)
    for text, start in pairs:
        place = _whole(start)
        if not isinstance(text, str) or not text.strip() or place is None:
            raise _unreadable(cell)
        yield GoldSpan(place, text)


def _unreadable(cell: Any) -> TrainingError:
    return TrainingError(f"answers {shown(cell)} cannot be read; they must be {_FORMS}")


def _placed(span: GoldSpan, context: str) -> GoldSpan:
    """The answer with the characters of its context."""
    start, end = span.start, span.start + len(span.text)
    if (last := find_end(context, start, span.text)) is not None:
        return GoldSpan(start, context[start:last])
    if start < 0 or end > len(context):
        raise TrainingError(
            f"answer {shown(span.text)} from character {start} to {end} is outside the context, which has "
            f"{len(context)} characters; the answer is {find_piece(context, start, None, span.text)}"
        )
    raise TrainingError(
        f"answer {shown(span.text)} is not at character {start} of the context, which has "
        f"{shown(context[start:end])} there; the answer is {find_piece(context, start, None, span.text)}"
    )


def folded(piece: str) -> str:
    """The piece with single spaces in Unicode's normal form NFC. Tools write a line end within a piece as a space."""
    return unicodedata.normalize("NFC", " ".join(piece.split()))


def find_end(text: str, start: int, piece: str) -> int | None:
    """Where a `piece` that begins at `start` ends, if the text there differs at most in white space and in the normal
    form; None for any other text. The piece has a word."""
    if text.startswith(piece, start) and start >= 0:
        return start + len(piece)
    if not 0 <= start < len(text) or text[start].isspace() != piece[0].isspace():
        return None
    words = [folded(word) for word in piece.split()]
    found = list(islice(_WORD.finditer(text, start), len(words)))
    if len(found) < len(words) or [folded(one.group()) for one in found[:-1]] != words[:-1]:
        return None
    last, own = found[-1], words[-1]
    # Decomposed, a word has the most characters.
    lengths = range(len(own), len(unicodedata.normalize("NFD", own)) + 1)
    return next((last.start() + num for num in lengths if folded(last.group()[:num]) == own), None)


def find_piece(text: str, start: int, end: int | None, piece: str) -> str:
    """The end of a sentence about a `piece` that is not the characters [start, end) of its text: in which unit it is
    there, or else at which character it is. Without `end`, it follows from the piece."""
    for unit, encoding, width in _UNITS:
        data, own = text.encode(encoding, "surrogatepass"), piece.encode(encoding, "surrogatepass")
        last = start * width + len(own) if end is None else end * width
        if start >= 0 and data[start * width : last] == own:
            return f"there if offsets are in {unit}; they must be in characters"
    if end is not None and text[start : end + 1] == piece:
        return f"from {start} to {end + 1}; the end is that after the last character"
    found = text.find(piece)
    return f"at character {found}" if found >= 0 else "nowhere in it"


def unit_of(text: str, end: int) -> str | None:
    """The unit in which a text is so long that `end` is in it; None if there is none."""
    return next((unit for unit, encoding, width in _UNITS if end * width <= len(text.encode(encoding))), None)
