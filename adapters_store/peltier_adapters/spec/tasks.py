"""Tasks: how texts become inputs, and outputs an answer. Imports no torch."""

import json
import math
import re
from collections.abc import Mapping
from operator import not_
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from peltier_adapters.errors import AdapterError
from peltier_adapters.spec.maps import Spec, is_none
from peltier_adapters.spec.text_rules import Label

MAX_NEW_TOKENS = 4096
MAX_LABELS = 4096
# A batch has a logit for each tag, or the values of a vector, for each of its tokens: 16 MiB for 4,096 tokens.
MAX_TAGS = 1024
MAX_VECTOR_SIZE = 1024
MAX_BEAMS = 16
LONGEST_ANSWER = 512
MAX_TEMPERATURE = 2.0
InputForm = Literal["single", "pair", "triple"]
TaskType = Literal[
    "classification", "multilabel", "regression", "text2text", "token-classification", "span", "embedding", "ranking",
    "sparse-embedding", "multi-vector-embedding",
]  # fmt: skip
# The types of which each token has an output, those that embed a text and are trained on pairs of texts, and all types
# that need an encoder's head.
TOKEN_TYPES: frozenset[TaskType] = frozenset({"token-classification", "span"})
EMBEDDING_TYPES: frozenset[TaskType] = frozenset({"embedding", "sparse-embedding", "multi-vector-embedding"})
ENCODER_TYPES: frozenset[TaskType] = TOKEN_TYPES | EMBEDDING_TYPES | {"ranking"}
# The types whose head reads each token.
TOKEN_HEAD_TYPES: frozenset[TaskType] = TOKEN_TYPES | {"sparse-embedding", "multi-vector-embedding"}
SPAN_LABELS = ("start", "end")
# The types that have inputs of one form.
INPUTS_OF: Mapping[TaskType, InputForm] = {
    "token-classification": "single",
    "embedding": "single",
    "sparse-embedding": "single",
    "multi-vector-embedding": "single",
    "span": "pair",
    "ranking": "pair",
}
_FIELDS: Mapping[InputForm, tuple[str, ...]] = {
    "single": ("{text}",),
    "pair": ("{text}", "{pair}"),
    "triple": ("{text}", "{pair}", "{third}"),
}
_FIELD = re.compile(r"\{(?:text|pair|third)\}")


class DecodingSpec(Spec):
    """How a T5 answers: by the likelihood of each label string, or by generating text.

    A caller may ask for fewer tokens than `max_new_tokens` or for other beams. `completion_temperature` is the default
    temperature of OpenAI's completions; 1 is OpenAI's own default, 0 is greedy."""

    answer: Literal["score", "generate"]
    max_new_tokens: Annotated[int, Field(ge=1, le=MAX_NEW_TOKENS)] = 64
    num_beams: Annotated[int, Field(ge=1, le=MAX_BEAMS)] = 1
    completion_temperature: Annotated[float, Field(ge=0, le=MAX_TEMPERATURE, allow_inf_nan=False)] = 1.0


class SpanSpec(Spec):
    """The answers of a task of the type span: how many tokens they have at most, and whether a context may have no
    answer."""

    # The time and the memory of an answer grow with it.
    max_answer_length: Annotated[int, Field(ge=1, le=LONGEST_ANSWER)] = 30
    no_answer: bool = False


class TaskSpec(Spec):
    """How texts become inputs, and logits an answer. `labels` are in the order of the logits; regression and ranking
    have one, token classification the tags of a token, a span its start and end, and embeddings have none.

    On T5 a task has a `template`, the text of the input with the placeholders `{text}`, `{pair}` and `{third}`. A
    closed task also has the label strings `targets`: one for each label, or the numbers that a regression can answer.

    With `padded` every input of an encoder is padded to `max_length`. No token attends to the padding, but gates
    average over it too, as in the UniPELT authors' code (docs/methods/unipelt.md).

    With `stride`, a text of more than `max_length` tokens is read in windows, for a task that reads tokens. Neighbours
    share `stride` tokens. Without, such a text is truncated.

    With `normalized` an embedding has unit length, which the vectors of a multi-vector embedding always have. `span` is
    for spans; None stands for its defaults.
    """

    type: TaskType
    labels: tuple[Label, ...] = Field(max_length=MAX_LABELS)
    inputs: InputForm
    max_length: Annotated[int, Field(ge=3)]
    template: Annotated[str, Field(max_length=4096)] | None = None
    targets: tuple[Label, ...] = Field(default=(), max_length=MAX_LABELS)
    decoding: DecodingSpec | None = None
    padded: bool = False
    # The files of other tasks do not mention these, so older releases read them too.
    stride: Annotated[int | None, Field(ge=0, exclude_if=is_none)] = None
    normalized: Annotated[bool, Field(exclude_if=not_)] = False
    span: Annotated[SpanSpec | None, Field(exclude_if=is_none)] = None

    @model_validator(mode="after")
    def _labels_fit(self) -> Self:
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("two labels have the same name")
        if self.type in ("regression", "ranking") and len(self.labels) != 1:
            raise ValueError(f"{self.type} has one label, not {len(self.labels)}")
        if self.type == "token-classification" and len(self.labels) > MAX_TAGS:
            raise ValueError(f"token-classification has at most {MAX_TAGS:,} labels, not {len(self.labels):,}")
        if self.type in ("classification", "token-classification") and len(self.labels) < 2:
            raise ValueError(f"{self.type} needs at least two labels")
        if self.type == "multilabel" and not self.labels:
            raise ValueError("multilabel needs at least one label")
        if self.type == "text2text" and (self.labels or self.targets):
            raise ValueError("text2text has no labels; its answer is any text")
        if self.embeds and self.labels:
            raise ValueError(f"{self.type} has no labels; its answer is a vector")
        if self.normalized and self.type != "embedding":
            raise ValueError(f"normalized is for embeddings; the task is {self.type}")
        if self.type == "span" and self.labels != SPAN_LABELS:
            raise ValueError(f"span has the labels {' and '.join(SPAN_LABELS)}, not {', '.join(self.labels)}")
        return self

    @model_validator(mode="after")
    def _inputs_fit(self) -> Self:
        wanted = INPUTS_OF.get(self.type, self.inputs)
        if self.inputs != wanted:
            raise ValueError(f"{self.type} has {wanted} inputs, not {self.inputs} inputs")
        if self.span is not None and self.type != "span":
            raise ValueError(f"span settings are only for tasks of the type span; this task is {self.type}")
        if self.stride is not None and (problem := self.stride_problem(self.stride)):
            raise ValueError(problem)
        return self

    def stride_problem(self, stride: int) -> str | None:
        """Why an input cannot be read in windows that share `stride` tokens; None if it can."""
        if not self.reads_tokens:
            return (
                f"stride is for tasks that read every token, {' and '.join(sorted(TOKEN_TYPES))}; this is {self.type}"
            )
        if 2 * stride > self.max_length:
            return (
                f"stride is {stride}; it must be at most {self.max_length // 2}, half of the task's {self.max_length}"
            )
        return None

    @model_validator(mode="after")
    def _text_fits(self) -> Self:
        if (self.template is None) != (self.decoding is None):
            raise ValueError("template and decoding belong together: a T5 task has both")
        if self.template is None:
            if self.type == "text2text" or self.targets:
                raise ValueError("text2text and targets need a template: they are for T5")
            if self.inputs == "triple":
                raise ValueError("inputs of three texts need a template: they are for T5")
            return self
        if self.padded:
            raise ValueError("padded inputs are for encoders; T5's gates do not average over padding")
        if self.type in ENCODER_TYPES:
            raise ValueError(f"{self.type} is for encoders; a task with a template is for T5")
        wanted = _FIELDS[self.inputs]
        if set(_FIELD.findall(self.template)) != set(wanted):
            raise ValueError(f"template {self.template!r} must name {' and '.join(wanted)}")
        self._check_targets()
        return self

    def _check_targets(self) -> None:
        if self.type == "multilabel":
            raise ValueError("multilabel is not served on T5: a text names one label, not a set of labels")
        if len(set(self.targets)) != len(self.targets):
            raise ValueError("two targets are the same text")
        if self.type == "classification" and len(self.targets) != len(self.labels):
            raise ValueError(f"there are {len(self.targets)} targets for {len(self.labels)} labels")
        if self.type == "regression":
            if len(self.targets) < 2:
                raise ValueError("regression on T5 needs at least two numbers as targets")
            wrong = [target for target in self.targets if not _is_number(target)]
            if wrong:
                raise ValueError(f"target {wrong[0]!r} is not a number")

    @property
    def num_texts(self) -> int:
        """Texts of one input."""
        return len(_FIELDS[self.inputs])

    @property
    def num_outputs(self) -> int:
        """Values of an output: one for each label or target, or one for a text. Token classification and span have as
        many for each token. The values of an embedding are those of its head."""
        return len(self.targets) or len(self.labels) or 1

    @property
    def reads_tokens(self) -> bool:
        """Whether an input has an output for each token."""
        return self.type in TOKEN_TYPES

    @property
    def has_output_per_token(self) -> bool:
        """Whether a row has an output for each of its tokens: where the task reads tokens, or their vectors."""
        return self.reads_tokens or self.type == "multi-vector-embedding"

    @property
    def embeds(self) -> bool:
        """Whether the answer is an embedding of some form."""
        return self.type in EMBEDDING_TYPES

    @property
    def has_token_head(self) -> bool:
        """Whether the head reads each token."""
        return self.type in TOKEN_HEAD_TYPES

    def render(self, *texts: str) -> tuple[str, ...]:
        """The texts to tokenise: the template with the texts of an input, or the texts themselves."""
        if self.template is None:
            return texts
        values = dict(zip(_FIELDS[self.inputs], texts, strict=True))
        return (_FIELD.sub(lambda match: values[match[0]], self.template),)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def parse_names(option: str, text: str) -> tuple[str, ...]:
    """Names from `a,b,c`, or from a JSON file with a list; an `AdapterError` names the `option`."""
    if not text.endswith(".json"):
        return tuple(name.strip() for name in text.split(","))
    try:
        names = json.loads(Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AdapterError(f"--{option} {text} cannot be read as JSON: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise AdapterError(f"--{option} {text} must contain a JSON list of names")
    return tuple(names)
