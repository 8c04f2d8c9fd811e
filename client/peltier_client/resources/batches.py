"""Requests about batches."""

from collections.abc import Mapping
from urllib.parse import quote

from peltier_client.exchange.request import Request, reader, to_json
from peltier_client.protocol import Batch, BatchEndpoint, BatchList, BatchRequest

_PAGE_SIZE = 100


def create_batch(input_file_id: str, endpoint: BatchEndpoint, metadata: Mapping[str, str] | None) -> Request[Batch]:
    json = to_json(BatchRequest, {"input_file_id": input_file_id, "endpoint": endpoint, "metadata": metadata})
    return Request("POST", "/v1/batches", reader(Batch), json=json)


def get_batch(batch_id: str) -> Request[Batch]:
    return Request("GET", _batch(batch_id), reader(Batch))


def cancel_batch(batch_id: str) -> Request[Batch]:
    return Request("POST", f"{_batch(batch_id)}/cancel", reader(Batch))


def list_batches(cursor: str | None = None) -> Request[BatchList]:
    """The page of batches after the one with the id `cursor`; None is the newest."""
    query = {"limit": _PAGE_SIZE} | ({"after": cursor} if cursor is not None else {})
    return Request("GET", "/v1/batches", reader(BatchList), query=query)


def _batch(batch_id: str) -> str:
    return f"/v1/batches/{quote(batch_id, safe='')}"
