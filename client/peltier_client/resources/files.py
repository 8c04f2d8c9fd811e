"""Requests about files, and about the batches that read them."""

import gzip
import zlib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from urllib.parse import quote

import httpx2

from peltier_client.errors import InvalidInput
from peltier_client.exchange.request import Request, new_key, page_query, raise_for_error, reader, to_json
from peltier_client.exchange.transfer import OnProgress
from peltier_client.protocol.batches import Batch, BatchEndpoint, BatchList, BatchRequest
from peltier_client.protocol.trainings import File, FileDeleted, FileList, FilePurpose

_KINDS = (".jsonl", ".csv", ".tsv")
_BATCH_PAGE_SIZE = 100


def create_file(
    content: str | PathLike[str] | bytes,
    name: str | None,
    on_progress: OnProgress | None = None,
    purpose: FilePurpose = "fine-tune",
) -> Request[File]:
    """Upload examples, a path or bytes. A file whose name ends in .gz is sent decompressed."""
    if isinstance(content, bytes):
        file = (name or "examples.jsonl", content)
    else:
        path = Path(content)
        plain = name or path.name.removesuffix(".gz")
        if not plain.lower().endswith(_KINDS):
            raise InvalidInput(f"{path} is not a file of examples; its name must end in {', '.join(_KINDS)} (.gz too)")
        file = (plain, _read(path))
    return Request("POST", "/v1/files", reader(File), form={"purpose": purpose}, file=file, on_progress=on_progress)


def _read(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"{path} cannot be decompressed: {error}") from error


def list_files(cursor: str | None = None) -> Request[FileList]:
    """The page of files after the one with the id `cursor`; None is the newest."""
    query = page_query(None) | ({"after": cursor} if cursor is not None else {})
    return Request("GET", "/v1/files", reader(FileList), query=query)


def get_file(file_id: str) -> Request[File]:
    return Request("GET", _file(file_id), reader(File))


def read_content(file_id: str) -> Request[bytes]:
    """The bytes of a file."""

    def read(response: httpx2.Response) -> bytes:
        raise_for_error(response)
        return response.content

    return Request("GET", f"{_file(file_id)}/content", read)


def delete_file(file_id: str) -> Request[FileDeleted]:
    return Request("DELETE", _file(file_id), reader(FileDeleted))


def _file(file_id: str) -> str:
    if not file_id:
        raise InvalidInput("the id of the file is empty")
    return f"/v1/files/{quote(file_id, safe='')}"


def create_batch(input_file_id: str, endpoint: BatchEndpoint, metadata: Mapping[str, str] | None) -> Request[Batch]:
    json = to_json(BatchRequest, {"input_file_id": input_file_id, "endpoint": endpoint, "metadata": metadata})
    return Request("POST", "/v1/batches", reader(Batch), json=json, headers=new_key())


def get_batch(batch_id: str) -> Request[Batch]:
    return Request("GET", _batch(batch_id), reader(Batch))


def cancel_batch(batch_id: str) -> Request[Batch]:
    return Request("POST", f"{_batch(batch_id)}/cancel", reader(Batch))


def list_batches(cursor: str | None = None) -> Request[BatchList]:
    """The page of batches after the one with the id `cursor`; None is the newest."""
    query = {"limit": _BATCH_PAGE_SIZE} | ({"after": cursor} if cursor is not None else {})
    return Request("GET", "/v1/batches", reader(BatchList), query=query)


def _batch(batch_id: str) -> str:
    return f"/v1/batches/{quote(batch_id, safe='')}"
