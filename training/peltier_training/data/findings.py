"""Sentences about examples that can be trained on, and may not mean what they say. Imports no torch."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from peltier_adapters.answers.tags import has_prefix, split_tag
from peltier_adapters.artifact.manifest import TaskInput

from peltier_training.data.data import LabelledData
from peltier_training.data.examples import Example
from peltier_training.data.gold import GoldEntity, entity_labels
from peltier_training.data.label_names import describe_alike
from peltier_training.errors import shown

# The letters of BIO, BIOES and BILOU, before or after a label.
_SCHEME = re.compile(r"^[BIESLU][-_](?=.)|(?<=.)[-_][BIESLU]$", re.IGNORECASE)
_BEGIN = re.compile(r"[BI][-_].")


def find_doubts(data: LabelledData) -> Iterator[str]:
    """The sentences, for a report before the first step."""
    names: Sequence[str] = data.labels.names
    is_tagged = data.labels.type == "token-classification"
    if (alike := describe_alike(entity_labels(names) if is_tagged else names)) is not None:
        yield alike[0].upper() + alike[1:]
    if is_tagged:
        yield from _unread_schemes(entity_labels(names))
        examples = [*data.train.examples, *data.validation.examples]
        yield from _cut_words(examples)
        yield from _mixed_schemes(examples)


def _unread_schemes(labels: Sequence[str]) -> Iterator[str]:
    """Labels that are one without the letter of a scheme, or begin with B or I. Only the tags of words are read so, and
    only with a prefix and a `-`."""
    groups: dict[str, list[str]] = {}
    for label in labels:
        place = _SCHEME.search(label)
        own = label if place is None else label[: place.start()] + label[place.end() :]
        groups.setdefault(own, []).append(label)
    alike = {own: group for own, group in groups.items() if len(group) > 1 or _BEGIN.match(group[0])}
    if alike:
        own, group = next(iter(alike.items()))
        yield (
            "Labels that look like tags, but are classes of their own: "
            f"{sum(map(len, alike.values()))} of {len(labels)}, such as {', '.join(map(shown, group))}. Tags of words "
            f"are {shown(f'B-{own}')} and {shown(f'I-{own}')}, and the label of a part of a text is {shown(own)}."
        )


def _cut_words(examples: Sequence[Example]) -> Iterator[str]:
    """Entities whose first or last word goes on outside of them, as with offsets in other units than characters."""
    spans = [(one, entity) for one in examples if one.label.words is None for entity in one.label.entities]
    cut = [(one, entity) for one, entity in spans if _cuts_word(one.input, entity)]
    if cut:
        one, entity = cut[0]
        yield (
            f"Entities that begin or end within a word: {len(cut)} of {len(spans)}, such as "
            f"{shown(one.input[entity.start : entity.end])} in {one.where}. The whole word gets the label; are the "
            "offsets in characters?"
        )


def _cuts_word(text: TaskInput, entity: GoldEntity) -> bool:
    return any(0 < place < len(text) and all(map(_is_letter, text[place - 1 : place + 1])) for place in entity[:2])


def _is_letter(char: str) -> bool:
    """Whether it is part of a word between spaces. Scripts without capitals, such as Chinese, may have no spaces."""
    return char.isalnum() and unicodedata.category(char) != "Lo"


def _mixed_schemes(examples: Sequence[Example]) -> Iterator[str]:
    """Entities that begin with `I-`, if others begin with `B-` although no entity of their label precedes them."""
    inside, begun = list[tuple[Example, str]](), False
    for one in examples:
        for before, tag in zip(("O", *one.label.tags), one.label.tags, strict=False):
            if has_prefix(tag) and split_tag(before)[1] != tag[2:]:
                begun = begun or tag.startswith("B-")
                inside += [(one, tag)] if tag.startswith("I-") else []
    if inside and begun:
        one, tag = inside[0]
        yield (
            f"Entities that begin with an I- tag, where others begin with B-: {len(inside)}, such as {shown(tag)} in "
            f"{one.where}. Each counts as an entity."
        )


def describe(preflight: Mapping[str, Any]) -> str:
    """What a preflight found, as sentences."""
    rows = preflight["rows"]
    checked = f"{rows['train']} rows to train on and {rows['validation']} to validate on were checked."
    return " ".join((checked, *preflight["warnings"]))


def storable(text: str) -> str:
    """The text without the characters that a registry refuses."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
