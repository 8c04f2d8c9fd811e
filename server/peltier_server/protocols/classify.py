"""Routes that classify texts: `/predict` of text-embeddings-inference, and `/classify` of vLLM."""

from collections.abc import Sequence
from itertools import count
from typing import Annotated, Any, Literal

from fastapi import Request, Response
from peltier_adapters.spec.tasks import TaskSpec
from peltier_client.errors import InvalidInput
from peltier_client.protocol.predict import Input, Parameters, Priority, Text, state_rule
from peltier_client.protocol.wire import RequestModel, ResponseModel
from pydantic import Field, StrictBool

from peltier_server.errors import TASK_ERRORS, scoped_errors
from peltier_server.http.application import accept, answer_json, resolve
from peltier_server.http.disconnects import cancel_on_disconnect
from peltier_server.http.scoped_route import scoped_router
from peltier_server.inference.prediction import TRUNCATION_HEADER, Prediction
from peltier_server.inference.prediction_request import ResolvedTask
from peltier_server.protocols.embed import TruncationDirection
from peltier_server.protocols.pooling import vllm_answer

_RESPONSES = {200: {"headers": TRUNCATION_HEADER}, **scoped_errors(*TASK_ERRORS)}
_OneOrTwo = Annotated[list[Text], Field(min_length=1, max_length=2)]

router = scoped_router("predict", "classify")


class TextClassifyRequest(RequestModel):
    """The request of text-embeddings-inference. `adapter_id` is a task reference. A text that is too long is refused,
    unless `truncate` is set.

    `inputs` is one input, a text or a pair of texts, or a batch of lists of one or two texts."""

    inputs: Annotated[
        Text | _OneOrTwo | Annotated[list[_OneOrTwo], Field(min_length=1, fail_fast=True)],
        Field(union_mode="left_to_right"),
        state_rule("must be a text, a pair of texts, or a non-empty list of lists of one or two texts"),
    ]
    adapter_id: str
    raw_scores: StrictBool = False
    truncate: StrictBool | None = False
    truncation_direction: TruncationDirection = "right"

    @property
    def rows(self) -> list[Input]:
        """The inputs of the prediction."""
        return [_row(one) for one in self.inputs] if self.is_batch else [_row(self.inputs)]

    @property
    def is_batch(self) -> bool:
        """Whether the answer is a list for each input."""
        return isinstance(self.inputs, list) and isinstance(self.inputs[0], list)


def _row(texts: Any) -> Input:
    """A text, or a list of one or two texts, as an input."""
    if isinstance(texts, str):
        return texts
    return str(texts[0]) if len(texts) == 1 else (texts[0], texts[1])


class ClassifyRequest(RequestModel):
    """The request of vLLM. `model` is a task reference. A text that is too long is refused, unless `truncate` is set.

    `user` is taken and not used. `truncate` is a prediction's and not vLLM's.
    """

    model: str
    input: Annotated[
        Text | Annotated[list[Text], Field(min_length=1, fail_fast=True)],
        state_rule("must be a text or a non-empty list of texts, in valid Unicode; token ids are not served"),
    ]
    user: str | None = None
    truncate: StrictBool = False
    priority: Priority = 0


class LabelScore(ResponseModel):
    """A label with its score."""

    score: float
    label: str


class Classified(ResponseModel):
    """The best label of the text at `index`, and the probabilities of all labels in the order of the task."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class ClassifyUsage(ResponseModel):
    """The tokens of the texts."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class ClassifyResponse(ResponseModel):
    """One class for each text, in their order."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Classified]
    usage: ClassifyUsage


@router.post("/predict", response_model=list[LabelScore] | list[list[LabelScore]], responses=_RESPONSES)
async def classify_texts(body: TextClassifyRequest, request: Request) -> Response:
    """Classify texts or pairs in the shape of text-embeddings-inference: all labels with their scores, best first."""
    target = resolve(request, accept(request), body.adapter_id)
    if target.entry.task.type not in ("classification", "multilabel", "regression", "ranking"):
        raise _wrong_type(target, "classification, multilabel, regression or ranking")
    truncate = bool(body.truncate)
    done = await _predict(request, target, body.rows, truncate=truncate, raw_scores=body.raw_scores)
    ranked = (_best_first(target.entry.task, one) for one in done.fields)
    return await answer_json(request, ranked if body.is_batch else next(ranked), done.opening.num_truncated)


@router.post("/classify", response_model=ClassifyResponse, responses=_RESPONSES)
async def classify(body: ClassifyRequest, request: Request) -> Response:
    """Classify texts in the shape of vLLM."""
    target = resolve(request, accept(request), body.model)
    if target.entry.task.type != "classification":
        raise _wrong_type(target, "classification")
    texts = [body.input] if isinstance(body.input, str) else body.input
    done = await _predict(request, target, texts, truncate=body.truncate, priority=body.priority)
    classified = map(_classified, count(), done.fields)
    answer = vllm_answer(f"classify-{target.context.request_id}", body.model, classified, done)
    answer["usage"] |= {"completion_tokens": 0}
    return await answer_json(request, answer, done.opening.num_truncated)


async def _predict(request: Request, target: ResolvedTask, rows: Sequence[Input], **given: Any) -> Prediction:
    """The prediction with the scores of all labels."""
    task = target.entry.task
    top_k = len(task.labels) if task.type in ("classification", "multilabel") else None
    # A T5 scores its labels, because a generated text has the score of one label.
    parameters = Parameters(answer="score" if task.decoding else None, top_k=top_k, **given)
    predictor = accept(request).predictor
    return await cancel_on_disconnect(request, predictor.predict(target, rows, parameters))


def _classified(index: int, found: dict[str, Any]) -> dict[str, Any]:
    probabilities = list(found["scores"].values())
    return {"index": index, "label": found["label"], "probs": probabilities, "num_classes": len(probabilities)}


def _best_first(task: TaskSpec, found: Any) -> list[dict[str, Any]]:
    if task.type in ("regression", "ranking"):
        return [{"score": found["value" if task.type == "regression" else "score"], "label": task.labels[0]}]
    ranked = sorted(found["scores"].items(), key=lambda pair: -pair[1])
    return [{"score": score, "label": label} for label, score in ranked]


def _wrong_type(target: ResolvedTask, wanted: str) -> InvalidInput:
    name, kind = str(target.reference), target.entry.task.type
    return InvalidInput(f"task {name!r} is of type {kind}; this address answers tasks of type {wanted}")
