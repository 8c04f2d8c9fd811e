"""The answers of one version to the rows of a file, and the types of task that can be judged."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from peltier_client.errors import InvalidInput
from peltier_client.exchange.results import Prediction
from peltier_client.protocol.comparison import JudgedType
from peltier_client.protocol.predict import AdapterRef, TextTuple


@dataclass(frozen=True)
class Case:
    """One labelled row; `label` is its cell as the file has it."""

    line: int
    input: str | TextTuple
    label: Any

    @property
    def first_text(self) -> str:
        """The text, or the first of several."""
        return self.input if isinstance(self.input, str) else self.input[0]


@dataclass
class Answers:
    """The answers of one task reference, row by row. `names` are its labels in order if its answers have scores."""

    task: str
    adapter: AdapterRef | None = None
    names: tuple[str, ...] = ()
    found: list[Prediction] = field(default_factory=list)
    num_truncated: int = 0

    def add(self, prediction: Prediction, adapter: AdapterRef) -> None:
        """Add an answer. Raises `InvalidInput` if it comes from another version than the others."""
        if self.adapter is not None and _key(self.adapter) != _key(adapter):
            versions = f"{self.adapter.version} and {adapter.version}"
            raise InvalidInput(f"{self.task} was answered by versions {versions}; name one, such as {adapter.name}@1")
        self.adapter = adapter
        self.names = self.names or tuple(prediction.scores or ())
        # Scores of every label for every row would need most of the memory.
        self.found.append(prediction.model_copy(update={"scores": None, "gates": None}))

    def values(self, kind: JudgedType, cases: Sequence[Case]) -> list[Any]:
        """What each prediction answers (see `AnsweredSide`). Raises `InvalidInput` for a text in place of a number."""
        if kind == "regression":
            return [self._number(*pair) for pair in zip(cases, self.found, strict=True)]
        return [_value(kind, prediction) for prediction in self.found]

    def _number(self, case: Case, prediction: Prediction) -> float:
        if prediction.value is None:
            raise InvalidInput(f"{self.task} gave no number for line {case.line}")
        return prediction.value


def find_kind(answers: Answers) -> JudgedType:
    """The type of the task, by the form of its answers. Raises `InvalidInput` for embeddings."""
    found = answers.found
    if any(prediction.labels is not None for prediction in found):
        return "multilabel"
    if any(prediction.entities is not None for prediction in found):
        return "token-classification"
    if any(prediction.value is not None for prediction in found):
        return "regression"
    # A generated text has a label if it is one of the task's labels.
    if any(prediction.label is not None for prediction in found):
        return "classification"
    if any(prediction.answer is not None for prediction in found):
        return "span"
    embedded = ((prediction.embedding, prediction.terms, prediction.vectors) for prediction in found)
    if any(form is not None for forms in embedded for form in forms):
        raise InvalidInput(f"{answers.task} answers embeddings, which have no right answer; see `peltier evaluate`")
    is_ranking = any(prediction.score is not None and prediction.text is None for prediction in found)
    return "ranking" if is_ranking else "text2text"


def _value(kind: JudgedType, prediction: Prediction) -> Any:
    match kind:
        case "classification":
            return prediction.label
        case "multilabel":
            return frozenset(prediction.labels or ())
        case "ranking":
            return prediction.score or 0.0
        case "token-classification":
            return frozenset((entity.start, entity.end, entity.label) for entity in prediction.entities or ())
        case "span":
            return prediction.answer or ""
        case _:
            return prediction.text or ""


def _key(adapter: AdapterRef) -> tuple[str, str, int]:
    return adapter.tenant, adapter.name, adapter.version
