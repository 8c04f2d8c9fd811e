"""Files of examples, of requests and of results, and the batches that read them, for asynchronous code."""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import cached_property
from os import PathLike

from peltier_client.asynchronous.sender import AsyncSender
from peltier_client.exchange.request import Request, new_key, page_request, read_content, reader, to_json
from peltier_client.exchange.transfer import OnProgress
from peltier_client.protocol.batches import Batch, BatchEndpoint, BatchList, BatchRequest
from peltier_client.protocol.trainings import File, FileDeleted, FileList, FilePurpose
from peltier_client.resources.files import batch_path, create_file, file_path


class AsyncFiles:
    """The files of the tenant: `client.files`."""

    def __init__(self, sender: AsyncSender) -> None:
        self._sender = sender

    async def create(
        self,
        content: str | PathLike[str] | bytes,
        name: str | None = None,
        on_progress: OnProgress | None = None,
        *,
        purpose: FilePurpose = "fine-tune",
    ) -> File:
        """Upload examples, a path or bytes, for trainings. `name` tells their form: .jsonl, .csv or .tsv. With the
        purpose `batch` it is a file of requests, in .jsonl.

        A file whose name ends in .gz is sent decompressed. Bytes without a `name` are JSONL.
        `on_progress` is called with the bytes sent so far and in all.
        """
        return await self._sender.send(create_file(content, name, on_progress, purpose))

    async def get(self, file_id: str) -> File:
        """What is known of one file, or `FileNotFound`."""
        return await self._sender.send(Request("GET", file_path(file_id), reader(File)))

    async def content(self, file_id: str) -> bytes:
        """The bytes of one file."""
        return await self._sender.send(Request("GET", f"{file_path(file_id)}/content", read_content))

    async def delete(self, file_id: str) -> None:
        """Delete one file; a file that a training or a batch still reads raises `Conflict`."""
        await self._sender.send(Request("DELETE", file_path(file_id), reader(FileDeleted)))

    def list(self) -> AsyncIterator[File]:
        """Every file, newest first, fetched page by page."""
        pages = self._sender.pages(page_request("/v1/files", FileList), "after")
        return (file async for page in pages for file in page.data)


class AsyncBatches:
    """The batches of the tenant: `client.batches`."""

    def __init__(self, sender: AsyncSender) -> None:
        self._sender = sender

    async def create(
        self, input_file_id: str, endpoint: BatchEndpoint, metadata: Mapping[str, str] | None = None
    ) -> Batch:
        """Answer the requests of a file: that of `client.files.create(path, purpose="batch")`."""
        asked = {"input_file_id": input_file_id, "endpoint": endpoint, "metadata": metadata}
        json = to_json(BatchRequest, asked)
        return await self._sender.send(Request("POST", "/v1/batches", reader(Batch), json=json, headers=new_key()))

    async def get(self, batch_id: str) -> Batch:
        """One batch with its status, or `BatchNotFound`. `client.files.content` reads its files."""
        return await self._sender.send(Request("GET", batch_path(batch_id), reader(Batch)))

    async def wait(
        self,
        batch_id: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the sync form too
        on_progress: Callable[[Batch], object] | None = None,
    ) -> Batch:
        """One batch when it has ended, in whichever way. `on_progress` gets the batch as it is each time it is asked
        for.

        Raises `TimedOut` after `timeout` seconds, and when the server is away for three minutes.
        """
        request = Request("GET", batch_path(batch_id), reader(Batch))
        return await self._sender.wait(request, f"batch {batch_id}", timeout, on_progress)

    async def cancel(self, batch_id: str) -> Batch:
        """Cancel one batch; one that has ended raises `Conflict`."""
        return await self._sender.send(Request("POST", f"{batch_path(batch_id)}/cancel", reader(Batch)))

    def list(self) -> AsyncIterator[Batch]:
        """Every batch, newest first, fetched page by page."""
        pages = self._sender.pages(page_request("/v1/batches", BatchList), "after")
        return (batch async for page in pages for batch in page.data)


class AsyncFileCalls:
    """What a client says about files and batches."""

    _sender: AsyncSender

    @cached_property
    def files(self) -> AsyncFiles:
        """The files of the tenant."""
        return AsyncFiles(self._sender)

    @cached_property
    def batches(self) -> AsyncBatches:
        """The batches of the tenant."""
        return AsyncBatches(self._sender)
