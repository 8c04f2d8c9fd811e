"""Reranking on the wire, in the shape of Cohere and Jina."""

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from peltier_client.protocol.predict import Text, state_rule
from peltier_client.protocol.wire import RequestModel, ResponseModel

NumResults = Annotated[StrictInt, Field(ge=1)]


_RULE = 'must be a non-empty list of texts or of {"text": "…"} objects, in valid Unicode'


class TextDocument(RequestModel):
    """A document as an object."""

    text: Text


Documents = Annotated[list[Text | TextDocument], Field(min_length=1), state_rule(_RULE)]


class RerankRequest(RequestModel):
    """`model` is a task reference, the `documents` are texts or objects with a `text`.

    The answer has the best `top_n`, or all. Documents that are too long for the task are truncated, unless `truncate`
    is false."""

    model: str
    query: Text
    documents: Documents
    top_n: NumResults | None = None
    return_documents: StrictBool = False
    truncate: StrictBool = True

    @property
    def texts(self) -> list[str]:
        """The texts of the documents."""
        return [one if isinstance(one, str) else one.text for one in self.documents]


class RankedText(ResponseModel):
    """The text of a document."""

    text: str


class RankedDocument(ResponseModel):
    """A document by its `index` in the request, with its relevance between 0 and 1."""

    index: int
    relevance_score: float
    document: Annotated[RankedText | None, Field(exclude_if=lambda value: value is None)] = None


class RerankUsage(ResponseModel):
    """The tokens of all pairs of the query and a document."""

    total_tokens: int
    truncated_inputs: int = 0


class RerankResponse(ResponseModel):
    """Documents by descending relevance; documents of equal relevance keep their order."""

    id: str
    model: str
    results: list[RankedDocument]
    usage: RerankUsage
