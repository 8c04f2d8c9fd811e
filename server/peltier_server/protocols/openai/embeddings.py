"""Embeddings in the shape of OpenAI's API."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from peltier_client.protocol import Parameters, Precision, Priority, RequestModel, ResponseModel, Text
from pydantic import (
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)
from pydantic_core import to_json

from peltier_server.context import RequestContext
from peltier_server.fairness.preparation import Preparation
from peltier_server.inference.prediction import Prediction, write_list, write_pieces


class EmbeddingRequest(RequestModel):
    """`model` is a task reference, or `_backbone`.

    `user` is taken and not used. `truncate`, `priority`, `prompt_name` and the formats of integers are a prediction's
    and not OpenAI's. Without `truncate` a text that is too long is refused, because OpenAI's answers have no field to
    report it. Sparse and multi-vector embeddings have one form for `float` and `base64`.
    """

    model: str
    input: Text | Annotated[list[Text], Field(min_length=1, fail_fast=True)]
    encoding_format: Literal["float", "base64", "int8", "uint8", "binary", "ubinary"] = "float"
    dimensions: Annotated[StrictInt, Field(ge=1)] | None = None
    prompt_name: Text | None = None
    user: str | None = None
    truncate: StrictBool = False
    priority: Priority = 0

    @field_validator("input", mode="wrap")
    @classmethod
    def _are_texts(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise ValueError(
                "it must be a text or a non-empty list of texts, in valid Unicode; token ids are not served"
            ) from None

    @property
    def texts(self) -> list[str]:
        """One or many."""
        return [self.input] if isinstance(self.input, str) else self.input

    @property
    def parameters(self) -> Parameters:
        """Those of a prediction."""
        return Parameters(
            dimensions=self.dimensions,
            precision=self._precision,
            prompt_name=self.prompt_name,
            truncate=self.truncate,
            priority=self.priority,
        )

    @property
    def _precision(self) -> Precision:
        if self.encoding_format == "float" or self.encoding_format == "base64":
            return "float32"
        return self.encoding_format


class EmbeddingUsage(ResponseModel):
    """Tokens of the texts, twice."""

    prompt_tokens: int
    total_tokens: int


class SparseVector(ResponseModel):
    """The vocabulary numbers of a text's terms, and their weights, largest first. Not OpenAI's."""

    indices: list[int]
    values: list[float]


class Embedding(ResponseModel):
    """The vector of the text at `index`: numbers, integers of 8 bits, or in base64 float32, little-endian. That of a
    sparse-embedding task is a `SparseVector`, that of a multi-vector-embedding task a vector for each token."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | list[int] | str | SparseVector | list[list[float]]


class EmbeddingResponse(ResponseModel):
    """One embedding for each text, in their order."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


async def embeddings_json(
    preparation: Preparation, context: RequestContext, asked: EmbeddingRequest, prediction: Prediction
) -> bytes:
    """The JSON of an `EmbeddingResponse`. The prediction has the embeddings in the form that was `asked`."""
    return await write_pieces(preparation, context, _pieces(asked, prediction))


def _vector(one: dict[str, Any]) -> Any:
    if "terms" not in one:
        return one["embedding"]
    return {"indices": [term["index"] for term in one["terms"]], "values": [term["weight"] for term in one["terms"]]}


def _pieces(asked: EmbeddingRequest, prediction: Prediction) -> Iterator[bytes]:
    before = b'{"object":"list","data":['
    for index, one in enumerate(prediction.predictions):
        assert isinstance(one, dict), "no text is generated"
        yield before + b'{"object":"embedding","index":%d,"embedding":' % index
        if "vectors" in one:
            yield from write_list(one["vectors"])
            yield b"}"
        else:
            yield to_json(_vector(one)) + b"}"
        before = b","
    num_tokens = prediction.opening.num_tokens
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    yield b'],"model":%s,"usage":%s}' % (to_json(asked.model), to_json(usage))
