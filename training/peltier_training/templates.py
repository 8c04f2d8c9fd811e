"""The texts that a T5 reads: templates with `{text}` and `{pair}` in them, as the T5 and Compacter papers had them
(methods.md 4.2). Imports no torch."""

from collections.abc import Mapping
from typing import Literal

from peltier_training.errors import TrainingError

_SENTENCE = "sentence: {text}"
_SENTENCES = "sentence1: {text} sentence2: {pair}"
_ENTAILMENT = "premise: {text} hypothesis: {pair}"

# Tasks of one or two texts; those of three columns (COPA, MultiRC, WiC, ReCoRD) have no place here.
TEMPLATES: Mapping[str, str] = {
    "cola": _SENTENCE,
    "sst2": _SENTENCE,
    "mrpc": _SENTENCES,
    "rte": _SENTENCES,
    "stsb": _SENTENCES,
    "wnli": _SENTENCES,
    "qqp": "question1: {text} question2: {pair}",
    "qnli": "question: {text} sentence: {pair}",
    "mnli": "premise: {text} hypothesis {pair}",  # without the second colon, as published (Q-C12)
    "superglue-boolq": "question: {text} passage: {pair}",
    "superglue-rte": _ENTAILMENT,
    "superglue-cb": _ENTAILMENT,
    "superglue-wsc.fixed": "text: {text}",
}
_GENERIC = {"single": "{text}", "pair": _SENTENCES}


def find_template(chosen: str | None, inputs: Literal["single", "pair"]) -> str:
    """The template that is `chosen` by its name or written out; None is the text as it is, or two numbered
    sentences."""
    if chosen is None:
        return _GENERIC[inputs]
    if chosen in TEMPLATES:
        return TEMPLATES[chosen]
    if "{text}" not in chosen:
        known = ", ".join(TEMPLATES)
        raise TrainingError(f"template {chosen!r} has no {{text}} in it and is not a known name: {known}")
    return chosen
