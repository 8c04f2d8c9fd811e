"""Uploads of files, and the addresses of files and batches."""

import gzip
import zlib
from os import PathLike
from pathlib import Path
from urllib.parse import quote

from peltier_client.errors import InvalidInput
from peltier_client.exchange.request import Request, reader
from peltier_client.exchange.transfer import OnProgress
from peltier_client.protocol.trainings import File, FilePurpose

_KINDS = (".jsonl", ".csv", ".tsv")


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


def file_path(file_id: str) -> str:
    """The address of a file."""
    if not file_id:
        raise InvalidInput("the id of the file is empty")
    return f"/v1/files/{quote(file_id, safe='')}"


def batch_path(batch_id: str) -> str:
    """The address of a batch."""
    return f"/v1/batches/{quote(batch_id, safe='')}"
