"""Options of single kinds of tasks: the texts of a T5, and embeddings. Imports no torch.

Templates of the texts that a T5 reads are those of the T5 and Compacter papers (docs/methods.md#tasks-as-text), with
the fields `{text}`, `{pair}` and `{third}`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal

from peltier_adapters.spec.head import MAX_TERMS, MIN_TERMS
from peltier_adapters.spec.maps import MAX_SIZE
from peltier_adapters.spec.tasks import (
    EMBEDDING_TYPES,
    MAX_BEAMS,
    MAX_NEW_TOKENS,
    MAX_TEMPERATURE,
    MAX_VECTOR_SIZE,
    InputForm,
    TaskType,
)
from typer import Option

from peltier_training.errors import TrainingError

_BOUNDS = (
    ("max_new_tokens", 1, MAX_NEW_TOKENS),
    ("num_beams", 1, MAX_BEAMS),
    ("completion_temperature", 0, MAX_TEMPERATURE),
)
_DENSE: frozenset[TaskType] = frozenset({"embedding"})
_SPARSE: frozenset[TaskType] = frozenset({"sparse-embedding"})
# The types that have an option of embeddings, but for those of dense ones.
_OPTION_TYPES: Mapping[str, frozenset[TaskType]] = {
    "temperature": EMBEDDING_TYPES,
    "projection": frozenset({"embedding", "multi-vector-embedding"}),
    "terms": _SPARSE,
    "flops_weight": _SPARSE,
}
# The name of `targets` in a request, where those of a preset with maps are its maps.
LABEL_TARGETS = "label_targets"
# As in ColBERT (Khattab and Zaharia 2020, section 4.1).
DEFAULT_VECTOR_SIZE = 128
_CLOSED: tuple[TaskType, ...] = ("classification", "regression")
_SENTENCE = "sentence: {text}"
_TWO_SENTENCES = "sentence1: {text} sentence2: {pair}"
_ENTAILMENT = "premise: {text} hypothesis: {pair}"
# Text columns have the order of the fields: a COPA input is [premise, choice1, choice2].
TEMPLATES: Mapping[str, str] = {
    "cola": _SENTENCE,
    "sst2": _SENTENCE,
    "mrpc": _TWO_SENTENCES,
    "rte": _TWO_SENTENCES,
    "stsb": _TWO_SENTENCES,
    "wnli": _TWO_SENTENCES,
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
    "pair": _TWO_SENTENCES,
    "triple": _TWO_SENTENCES + " sentence3: {third}",
}


@dataclass(frozen=True)
class TextOptions:
    """Options of a T5; None is the default that the help names."""

    template: Annotated[
        str | None,
        Option(
            help="A known name (sst2, mrpc, mnli, …) or a text with {text}, {pair}, {third} in it. Default: the texts, "
            "numbered if there are several."
        ),
    ] = None
    task_prefix: Annotated[
        bool | None,
        Option(
            "--task-prefix/--no-task-prefix", help="Begin each input with the task's name. Default: as the preset does."
        ),
    ] = None
    targets: Annotated[
        str | None, Option(help="Texts that stand for the labels: digits (default), words or a,b,c.")
    ] = None
    regression_step: Annotated[float | None, Option(help="Answer numbers in steps of this size; default 0.2.")] = None
    answer: Annotated[
        Literal["score", "generate"] | None,
        Option(help="Score the labels (score, the default) or generate a text (generate)."),
    ] = None
    max_new_tokens: Annotated[
        int | None, Option(help="Maximum tokens of an answer; default: the longest target of the training data.")
    ] = None
    num_beams: Annotated[int | None, Option(help="Number of beams of a generated answer; default 1.")] = None
    completion_temperature: Annotated[
        float | None, Option(help="Temperature of /v1/completions requests that name none; default 1, 0 is greedy.")
    ] = None

    @property
    def given(self) -> list[str]:
        """Names of the options that are not None."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    def check(self, task_type: TaskType) -> None:
        """Raise a `TrainingError` for an invalid value, or for an option that this type of task does not use."""
        for name, least, most in _BOUNDS:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise TrainingError(f"{name} is {value}; it must be from {least} to {most:g}")
        if self.regression_step is not None and not 0 < self.regression_step < math.inf:
            raise TrainingError(f"regression_step is {self.regression_step}; it must be a number above 0")
        if self.answer not in (None, "score", "generate"):
            raise TrainingError(f"answer is {self.answer!r}; it must be 'score' or 'generate'")
        if self.answer == "score" and task_type not in _CLOSED:
            raise TrainingError(f"answer 'score' needs labels; {task_type} has none")
        for name, wanted in (("targets", "classification"), ("regression_step", "regression")):
            if getattr(self, name) is not None and task_type != wanted:
                raise TrainingError(f"{name} is for {wanted}; the task type is {task_type}")

    def resolved(self, task_type: TaskType, *, task_prefix: bool) -> "TextOptions":
        """The options with the defaults that depend on the preset and on the type of task."""
        return replace(
            self,
            task_prefix=task_prefix if self.task_prefix is None else self.task_prefix,
            answer=self.answer or ("score" if task_type in _CLOSED else "generate"),
        )


@dataclass(frozen=True)
class EmbeddingOptions:
    """Options of an embedding; None is the default that the help names."""

    projection: Annotated[
        int | None,
        Option(
            help="Project the pooled vector, or each token's vector of a multi-vector embedding, to this many values. "
            "Default: the pooled vector is the embedding; 128 for each token."
        ),
    ] = None
    normalize: Annotated[
        bool | None, Option("--normalize/--no-normalize", help="Answer vectors of unit length. Default: yes.")
    ] = None
    matryoshka: Annotated[
        str | None,
        Option(
            help="Sizes of shorter embeddings to train too, such as 64,128: the first values of each. Default: none."
        ),
    ] = None
    temperature: Annotated[
        float | None,
        Option(
            help="Temperature of the softmax over the second texts of a batch, for pairs without scores; 0.05, or "
            "1 for sparse embeddings."
        ),
    ] = None
    terms: Annotated[int | None, Option(help="Maximum terms of a sparse embedding; 256.")] = None
    flops_weight: Annotated[
        float | None,
        Option(help="Weight of the loss that keeps sparse embeddings short; a larger one leaves fewer terms. 0.001."),
    ] = None

    @property
    def given(self) -> list[str]:
        """Names of the options that are not None."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    @property
    def normalized(self) -> bool:
        """Whether the task answers vectors of unit length."""
        return self.normalize is not False

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The numbers of first values that are trained to be embeddings, besides all. Raises a `TrainingError` for what
        is no list of numbers."""
        words = [word.strip() for word in (self.matryoshka or "").split(",") if word.strip()]
        if not all(word.isascii() and word.isdigit() and 0 < int(word) <= MAX_SIZE for word in words):
            raise TrainingError(f"matryoshka is {self.matryoshka!r}; it must be numbers of dimensions, such as 64,128")
        return tuple(dict.fromkeys(map(int, words)))

    def check(self, task_type: TaskType) -> None:
        """Raise a `TrainingError` for an invalid value, or for an option of another type of task."""
        for name in self.given:
            if task_type not in _OPTION_TYPES.get(name, _DENSE):
                wanted = " and ".join(sorted(_OPTION_TYPES.get(name, _DENSE)))
                raise TrainingError(f"{name} is for {wanted}; the task type is {task_type}")
        if self.terms is not None and not MIN_TERMS <= self.terms <= MAX_TERMS:
            raise TrainingError(f"terms is {self.terms}; it must be from {MIN_TERMS} to {MAX_TERMS}")
        if self.flops_weight is not None and not 0 <= self.flops_weight < math.inf:
            raise TrainingError(f"flops_weight is {self.flops_weight}; it must be a number from 0")
        if self.projection is not None and not 1 <= self.projection <= MAX_SIZE:
            raise TrainingError(f"projection is {self.projection}; it must be from 1 to {MAX_SIZE}")
        if task_type == "multi-vector-embedding" and (self.projection or 0) > MAX_VECTOR_SIZE:
            raise TrainingError(f"projection is {self.projection}; {task_type} has at most {MAX_VECTOR_SIZE} values")
        if self.temperature is not None and not 0 < self.temperature < math.inf:
            raise TrainingError(f"temperature is {self.temperature}; it must be a number above 0")
        self.check_size(MAX_SIZE)

    def check_size(self, size: int) -> None:
        """Raise a `TrainingError` for a Matryoshka dimension that an embedding of `size` values does not have."""
        if max(self.dimensions, default=0) > size:
            raise TrainingError(f"matryoshka has {max(self.dimensions)} dimensions; the embedding has {size}")


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
