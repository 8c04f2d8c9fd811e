"""The comparison of two versions by their answers."""

from typing import Any

from fastapi import Request, Response
from peltier_client.errors import InvalidInput
from peltier_client.protocol.comparison import (
    AnsweredEntity,
    ComparedAnswers,
    ComparedVersion,
    ComparisonRequest,
    ComparisonResponse,
    DifferingRow,
    JudgedType,
    UnjudgedRow,
)
from peltier_client.quality.comparison import MAIN_METRICS, JudgedPair, judge_pair
from peltier_client.quality.judgement import AnsweredSide, LabelReader
from pydantic_core import PydanticSerializationError, to_json

from peltier_server.errors import scoped_errors
from peltier_server.http.application import accept, get_context
from peltier_server.http.disconnects import cancel_on_disconnect
from peltier_server.http.scoped_route import scoped_router
from peltier_server.inference.prediction import JSONBytes

# A row is judged in the time in which about this many characters are tokenised.
_COST_OF_A_ROW = 80
_SHOWN_PROBLEM_CHARS = 400

router = scoped_router("predict", "predict", "/v1")


@router.post("/compare", response_model=ComparisonResponse, responses=scoped_errors())
async def compare(body: ComparisonRequest, request: Request) -> Response:
    """Compare two versions by the answers that they gave to the same labelled rows: metrics, the rows that differ, and
    a significance test, as `peltier compare` prints them. Nothing is predicted."""
    accept(request)
    context = get_context(request)
    cost = _COST_OF_A_ROW * len(body.labels)
    judged = request.app.state.preparation.run(context.tenant, cost, lambda: _judge(body))
    answer: bytes = await cancel_on_disconnect(request, judged)
    context.reserve(len(answer))
    return JSONBytes(answer, {})


def _judge(body: ComparisonRequest) -> bytes:
    """The answer as JSON. Raises `InvalidInput` for answers of another type, and for what no metric can be computed
    of."""
    sides = body.first, body.second
    reader = LabelReader(
        body.task_type, (sides[0].task, sides[1].task), (sides[0].names, sides[1].names), body.separator
    )
    gold, kept, problems = list[Any](), list[int](), list[UnjudgedRow]()
    for row, cell in enumerate(body.labels):
        try:
            gold.append(reader.read(cell))
            kept.append(row)
        except InvalidInput as error:
            problems.append(UnjudgedRow(row=row, problem=error.message[:_SHOWN_PROBLEM_CHARS]))
    texts = [] if body.texts is None else [body.texts[row] for row in kept]
    first, second = (_side(body.task_type, side, kept) for side in sides)
    try:
        return to_json(_response(body, judge_pair(body.task_type, texts, gold, first, second), kept, problems))
    except ArithmeticError:
        raise InvalidInput("the labels and answers are numbers of which no metric can be computed") from None
    except PydanticSerializationError:
        raise InvalidInput("a label is not valid Unicode") from None


def _side(kind: JudgedType, given: ComparedAnswers, rows: list[int]) -> AnsweredSide:
    answers = [_read(kind, answer) for answer in given.answers]
    for row, answer in enumerate(answers):
        if answer is _WRONG:
            raise InvalidInput(f"answer {row} of {given.task} is not {_FORMS[kind]}, which a {kind} task answers")
    return AnsweredSide(given.task, given.names, [answers[row] for row in rows])


def _response(
    body: ComparisonRequest, found: JudgedPair, rows: list[int], problems: list[UnjudgedRow]
) -> ComparisonResponse:
    first, second = found.first, found.second
    return ComparisonResponse(
        task_type=body.task_type,
        rows=len(rows),
        main_metric=MAIN_METRICS[body.task_type],
        first=ComparedVersion(task=body.first.task, metrics=first.metrics, classes=first.classes),
        second=ComparedVersion(task=body.second.task, metrics=second.metrics, classes=second.classes),
        better=found.better,
        only_first_right=found.only_right[0],
        only_second_right=found.only_right[1],
        p_value=found.p_value,
        verdict=found.verdict,
        labels=first.gold,
        differences=[
            DifferingRow(
                row=rows[place],
                label=first.gold[place],
                first=first.shown[place],
                second=second.shown[place],
                better=found.nearer(place),
            )
            for place in found.differing
        ],
        problems=problems,
    )


_WRONG = object()


def _read(kind: JudgedType, answer: Any) -> Any:
    """The answer of a task of this type; `_WRONG` if it has another form."""
    match kind, answer:
        case "classification", None | str():
            return answer
        case "multilabel", [*labels] if all(isinstance(one, str) for one in labels):
            return frozenset(labels)
        case "regression" | "ranking", float():
            return answer
        case "text2text" | "span", str():
            return answer
        case "token-classification", [*entities] if all(isinstance(one, AnsweredEntity) for one in entities):
            return frozenset((one.start, one.end, one.label) for one in entities)
    return _WRONG


_FORMS: dict[JudgedType, str] = {
    "classification": "a label or null",
    "multilabel": "a list of labels",
    "regression": "a number",
    "ranking": "a number",
    "text2text": "a text",
    "span": "a text",
    "token-classification": "a list of entities",
}
