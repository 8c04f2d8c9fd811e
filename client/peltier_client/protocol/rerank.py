"""Reranking on the wire, in the shape of Cohere and Jina."""

from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, StrictInt, model_validator

from peltier_client.protocol.predict import Text, state_rule
from peltier_client.protocol.wire import RequestModel, ResponseModel

NumResults = Annotated[StrictInt, Field(ge=1)]


_RULE = 'must be a non-empty list of texts or of {"text": "…"} objects, in valid Unicode'


class TextDocument(RequestModel):
    """A document as an object."""

    text: Text


Documents = Annotated[list[Text | TextDocument], Field(min_length=1, fail_fast=True), state_rule(_RULE)]


# Documents have no other fields, and this route answers no embeddings.
RankFields = Annotated[
    list[Literal["text"]], Field(min_length=1, max_length=1), state_rule('must be ["text"], the only field')
]
NoEmbeddings = Annotated[Literal[False], state_rule("must be false: this route answers no embeddings")]


class RerankRequest(RequestModel):
    """`model` is a task reference, the `documents` are texts or objects with a `text`.

    The answer has the best `top_n`, or all. Documents that are too long for the task are truncated, unless `truncate`
    is false; `truncation` is another name for it. The last four are for clients of other servers:
    `max_tokens_per_doc` must be at least the task's maximum length, `max_chunks_per_doc` changes nothing because a
    document is one chunk, `rank_fields` must be `["text"]`, and `return_embeddings` false."""

    model: str
    query: Text
    documents: Documents
    top_n: NumResults | None = None
    return_documents: StrictBool = False
    truncate: StrictBool | None = None
    truncation: StrictBool | None = None
    max_tokens_per_doc: NumResults | None = None
    max_chunks_per_doc: NumResults | None = None
    rank_fields: RankFields | None = None
    return_embeddings: NoEmbeddings = False

    @model_validator(mode="after")
    def _truncates_or_not(self) -> Self:
        if None not in (self.truncate, self.truncation) and self.truncate != self.truncation:
            raise ValueError("truncate and truncation are the same; give one of them")
        return self

    @property
    def truncates(self) -> bool:
        """Whether documents that are too long are truncated."""
        return False not in (self.truncate, self.truncation)

    @property
    def texts(self) -> list[str]:
        """The texts of the documents."""
        return [one if isinstance(one, str) else one.text for one in self.documents]


class RankedText(ResponseModel):
    """The text of a document."""

    text: str


class RankedDocument(ResponseModel):
    """A document by its `index` in the request, with its relevance: from 0 to 1 for a ranking task, from -1 to 1 for a
    multi-vector-embedding task."""

    index: int
    relevance_score: float
    document: Annotated[RankedText | None, Field(exclude_if=lambda value: value is None)] = None


class RerankUsage(ResponseModel):
    """The tokens of all pairs of the query and a document, or of the query and the documents if each is read alone."""

    total_tokens: int
    truncated_inputs: int = 0


class RerankResponse(ResponseModel):
    """Documents by descending relevance; documents of equal relevance keep their order."""

    id: str
    model: str
    results: list[RankedDocument]
    usage: RerankUsage
