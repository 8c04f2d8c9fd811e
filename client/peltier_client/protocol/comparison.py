"""Comparisons on the wire: the answers of two versions to the same labelled rows, and how good they are."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, StrictInt, model_validator

from peltier_client.protocol.predict import Text, state_rule
from peltier_client.protocol.wire import RequestModel, ResponseModel

JudgedType = Literal[
    "classification", "multilabel", "regression", "text2text", "ranking", "token-classification", "span"
]
SideName = Literal["first", "second"]

MAX_COMPARED_ROWS = 10_000
# The squares of larger numbers are infinite.
LARGEST_NUMBER = 1e100

Number = Annotated[float, Field(strict=True, ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]


class AnsweredEntity(RequestModel):
    """An entity of a text: its characters from `start` up to `end`, and its label."""

    start: Annotated[StrictInt, Field(ge=0)]
    end: Annotated[StrictInt, Field(ge=0)]
    label: Text


ComparedAnswer = Annotated[
    Text | Number | list[Text] | list[AnsweredEntity] | None,
    state_rule('must be a text, a number, a list of texts, a list of {"start", "end", "label"} objects, or null'),
]


class ComparedAnswers(RequestModel):
    """The answers of one version, one for each row. `names` are the labels of its task in order, if it has labels.

    An answer is what a prediction of the type has: the `label` of a classification or null for another one, the
    `labels` of a multilabel task, the `value` of a regression, the `score` of a ranking, the `entities` of a token
    classification, the `answer` of a span, or a `text`.
    """

    task: Annotated[Text, Field(min_length=1, max_length=256)]
    names: tuple[Text, ...] = ()
    answers: Annotated[list[ComparedAnswer], Field(min_length=1, max_length=MAX_COMPARED_ROWS)]


class ComparisonRequest(RequestModel):
    """Answers that two versions gave to the same rows.

    `labels` has the right answer of each row, as a file of `peltier compare` has it; several labels of a text are a
    JSON list, or separated by `separator`. `texts` has the text of each row: a ranking needs the queries, and a token
    classification what the entities are of.
    """

    task_type: JudgedType
    labels: Annotated[list[JsonValue], Field(min_length=1, max_length=MAX_COMPARED_ROWS)]
    texts: Annotated[list[Text], Field(min_length=1, max_length=MAX_COMPARED_ROWS)] | None = None
    separator: Annotated[Text, Field(min_length=1, max_length=16)] | None = None
    first: ComparedAnswers
    second: ComparedAnswers

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.texts is None and self.task_type in ("ranking", "token-classification"):
            raise ValueError(f"a {self.task_type} needs the texts of the rows")
        given = {"first.answers": self.first.answers, "second.answers": self.second.answers, "texts": self.texts}
        for name, values in given.items():
            if values is not None and len(values) != len(self.labels):
                raise ValueError(f"{name} has {len(values)} values for {len(self.labels)} labels; each row needs one")
        return self


class ComparedVersion(ResponseModel):
    """The metrics of one version, and those of each label."""

    task: str
    metrics: dict[str, float]
    classes: dict[str, dict[str, float]]


class ComparisonVerdict(ResponseModel):
    """The result in sentences: which version is better, how many rows differ, and whether that may be chance."""

    better: str
    rows: str
    chance: str


class DifferingRow(ResponseModel):
    """A row with different answers. `row` counts from 0; `better` is the version whose answer is nearer to the label,
    null for neither."""

    row: int
    label: Any
    first: Any
    second: Any
    better: SideName | None


class UnjudgedRow(ResponseModel):
    """A row whose label cannot be read, and why."""

    row: int
    problem: str


class ComparisonResponse(ResponseModel):
    """Two versions compared on the rows whose labels can be read; `problems` has the others.

    `main_metric` decides which version is `better`, null if both have the same value. `only_first_right` counts the
    rows that only the first answers correctly (in a regression, the rows where it is nearer, and in a ranking the
    queries of which it ranks the first relevant document higher). `p_value` is that of McNemar's exact test (in a
    regression or a ranking, of a sign test). `labels` are the labels of the judged rows as they were read.
    """

    task_type: JudgedType
    rows: int
    main_metric: str
    first: ComparedVersion
    second: ComparedVersion
    better: SideName | None
    only_first_right: int
    only_second_right: int
    p_value: float
    verdict: ComparisonVerdict
    labels: list[Any]
    differences: list[DifferingRow]
    problems: list[UnjudgedRow]
