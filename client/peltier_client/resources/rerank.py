"""Requests that sort documents by their relevance for a query."""

from collections.abc import Iterable

import httpx2

from peltier_client.exchange.request import Request, read_body, to_json
from peltier_client.protocol import RankedDocument, RerankRequest, RerankResponse


def rerank(task: str, query: str, documents: Iterable[str], top_n: int | None) -> Request[list[RankedDocument]]:
    """Sort documents with a ranking task."""
    json = to_json(RerankRequest, {"model": task, "query": query, "documents": list(documents), "top_n": top_n})

    def read(response: httpx2.Response) -> list[RankedDocument]:
        return read_body(response, RerankResponse).results

    return Request("POST", "/v1/rerank", read, json=json)
