"""Bodies of reranking in the shape of text-embeddings-inference."""

from typing import Annotated

from peltier_client.protocol import RequestModel, ResponseModel, Text
from pydantic import Field, StrictBool

from peltier_server.protocols.truncation_direction import TruncationDirection


class TextRerankRequest(RequestModel):
    """The request of text-embeddings-inference. `adapter_id` is a task reference. With `raw_scores` the scores are the
    outputs of the head in place of values between 0 and 1. Texts are truncated unless `truncate` is false."""

    adapter_id: str
    query: Text
    texts: Annotated[list[Text], Field(min_length=1)]
    raw_scores: StrictBool = False
    return_text: StrictBool = False
    truncate: StrictBool | None = True
    truncation_direction: TruncationDirection = "right"


class TextRank(ResponseModel):
    """A text by its `index` in the request, with its score."""

    index: int
    score: float
    text: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
