"""Embeddings in the shape of OpenAI's API."""

from typing import Annotated, Any, Literal

from peltier_client.protocol.predict import Parameters, Precision, Priority, Text
from peltier_client.protocol.wire import RequestModel, ResponseModel
from pydantic import (
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from peltier_server.inference.prediction import Prediction


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


def embeddings_answer(asked: EmbeddingRequest, prediction: Prediction) -> dict[str, Any]:
    """The fields of an `EmbeddingResponse`. The prediction has the embeddings in the form that was `asked`."""
    vectors = (
        {"object": "embedding", "index": index, "embedding": _vector(one)}
        for index, one in enumerate(prediction.fields)
    )
    return {"object": "list", "data": vectors, "model": asked.model, "usage": token_usage(prediction)}


def token_usage(prediction: Prediction) -> dict[str, int]:
    """The fields of an `EmbeddingUsage`."""
    num_tokens = prediction.opening.num_tokens
    return {"prompt_tokens": num_tokens, "total_tokens": num_tokens}


def _vector(found: dict[str, Any]) -> Any:
    if "vectors" in found:
        return found["vectors"]
    if "terms" not in found:
        return found["embedding"]
    terms = found["terms"]
    return {"indices": [term["index"] for term in terms], "values": [term["weight"] for term in terms]}
