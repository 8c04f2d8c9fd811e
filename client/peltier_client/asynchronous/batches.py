"""Batches of requests in files, for asynchronous code."""

from collections.abc import AsyncIterator, Mapping

from peltier_client.asynchronous.sender import AsyncSender
from peltier_client.protocol import Batch, BatchEndpoint
from peltier_client.resources import batches


class AsyncBatches:
    """The batches of the tenant: `client.batches`."""

    def __init__(self, sender: AsyncSender) -> None:
        self._sender = sender

    async def create(
        self, input_file_id: str, endpoint: BatchEndpoint, metadata: Mapping[str, str] | None = None
    ) -> Batch:
        """Answer the requests of a file: that of `client.files.create(path, purpose="batch")`."""
        return await self._sender.send(batches.create_batch(input_file_id, endpoint, metadata))

    async def get(self, batch_id: str) -> Batch:
        """One batch with its status, or `BatchNotFound`. `client.files.content` reads its files."""
        return await self._sender.send(batches.get_batch(batch_id))

    async def cancel(self, batch_id: str) -> Batch:
        """Cancel one batch; one that has ended raises `Conflict`."""
        return await self._sender.send(batches.cancel_batch(batch_id))

    def list(self) -> AsyncIterator[Batch]:
        """Every batch, newest first, fetched page by page."""
        pages = self._sender.pages(batches.list_batches)
        return (batch async for page in pages for batch in page.data)
