"""Templates of the texts that a T5 reads, from the T5 and Compacter papers (docs/methods.md#tasks-as-text), with the
fields `{text}`, `{pair}` and `{third}`. Imports no torch."""

from collections.abc import Mapping

from peltier_adapters.spec.tasks import InputForm

from peltier_training.errors import TrainingError

_SENTENCE = "sentence: {text}"
_SENTENCES = "sentence1: {text} sentence2: {pair}"
_ENTAILMENT = "premise: {text} hypothesis: {pair}"

# Text columns have the order of the fields: a COPA input is [premise, choice1, choice2].
TEMPLATES: Mapping[str, str] = {
    "cola": _SENTENCE,
    "sst2": _SENTENCE,
    "mrpc": _SENTENCES,
    "rte": _SENTENCES,
    "stsb": _SENTENCES,
    "wnli": _SENTENCES,
    "qqp": "question1: {text} question2: {pair}",
    "qnli": "question: {text} sentence: {pair}",
    "mnli": "premise: {text} hypothesis {pair}",  # without the second colon, as published (docs/methods.md#templates)
    "superglue-boolq": "question: {text} passage: {pair}",
    "superglue-rte": _ENTAILMENT,
    "superglue-cb": _ENTAILMENT,
    "superglue-copa": "premise: {text} choice1: {pair} choice2: {third}",
    "superglue-multirc": "question: {text} answer: {pair} paragraph: {third}",
    "superglue-wic": "sentence1: {text} sentence2: {pair} word: {third}",
    "superglue-wsc.fixed": "text: {text}",
    "superglue-record": "record query: {text} entities: {pair} passage: {third}",
}
_GENERIC: Mapping[InputForm, str] = {
    "single": "{text}",
    "pair": _SENTENCES,
    "triple": _SENTENCES + " sentence3: {third}",
}


def find_template(chosen: str | None, inputs: InputForm) -> str:
    """The template that is `chosen` by name or given as a text. None is the plain text, or numbered sentences."""
    if chosen is None:
        return _GENERIC[inputs]
    if chosen in TEMPLATES:
        return TEMPLATES[chosen]
    if "{text}" not in chosen:
        known = ", ".join(TEMPLATES)
        raise TrainingError(f"template {chosen!r} has no {{text}} in it and is not a known name: {known}")
    return chosen
