"""Trainings on the server, and one of them from its examples to its end, for asynchronous code."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from functools import cached_property
from typing import Unpack

import httpx2

from peltier_client.asynchronous.files import AsyncFiles
from peltier_client.asynchronous.sender import AsyncSender
from peltier_client.errors import PeltierError
from peltier_client.exchange.patience import Patience
from peltier_client.exchange.request import Request, page_request, raise_for_error, reader
from peltier_client.exchange.training_events import EventReader
from peltier_client.protocol.trainings import Training, TrainingEvent, TrainingList, TrainingStatus, TrainingSummary
from peltier_client.resources.trainings import (
    Examples,
    NewTraining,
    TrainingOptions,
    TrainingSources,
    create_training,
    read_events,
    read_sources,
    succeeded,
    training_path,
)

logger = logging.getLogger(__name__)


class AsyncTrainings:
    """The trainings of the tenant: `client.trainings`. Requires the scope train."""

    def __init__(self, sender: AsyncSender) -> None:
        self._sender = sender

    async def create(self, task: str, **options: Unpack[NewTraining]) -> Training:
        """Queue a training of `examples` or of the file `file_id`; `client.train` also takes paths and iterables."""
        return await self._sender.send(create_training(task, options))

    async def get(self, training_id: str) -> Training:
        """One training with its state, or `TrainingNotFound`."""
        return await self._sender.send(Request("GET", training_path(training_id), reader(Training)))

    async def events(self, training_id: str, after: int = 0) -> AsyncIterator[TrainingEvent]:
        """What happened to a training after the event with the id `after`, oldest first, and then what happens, until
        the training has ended.

        After a broken connection it goes on with the next event. It raises when the server is away for three minutes.
        """
        patience, last = Patience(), after
        while True:
            is_open = False
            try:
                response, event_reader = await self._sender.open(read_events(training_id, last))
                is_open = True
                async with aclosing(self._receive(response, event_reader)) as events:
                    async for event in events:
                        last = event.id
                        yield event
                if event_reader.is_complete:
                    return
                pause = patience.pause()
            except PeltierError as error:
                if is_open:  # the server was there until now
                    patience.renew()
                pause = patience.pause(error)
            await asyncio.sleep(pause)

    async def pause(self, training_id: str) -> Training:
        """Pause a queued or running training; a running one stops when its worker learns of it."""
        return await self._sender.send(Request("POST", f"{training_path(training_id)}/pause", reader(Training)))

    async def resume(self, training_id: str) -> Training:
        """Queue a paused or failed training again, from its last checkpoint."""
        return await self._sender.send(Request("POST", f"{training_path(training_id)}/resume", reader(Training)))

    async def cancel(self, training_id: str) -> Training:
        """Cancel a training that has not ended; a running one stops when its worker learns of it."""
        return await self._sender.send(Request("POST", f"{training_path(training_id)}/cancel", reader(Training)))

    async def delete(self, training_id: str) -> None:
        """Delete a training that has ended, with its events; the adapter that it published stays."""
        await self._sender.send(Request("DELETE", training_path(training_id), raise_for_error))

    async def wait(self, training_id: str, timeout: float | None = None) -> Training:  # noqa: ASYNC109 - the sync form too
        """A training when it has ended, in whichever way; a paused one is waited for too.

        Raises `TimedOut` after `timeout` seconds, and when the server is away for three minutes.
        """
        request = Request("GET", training_path(training_id), reader(Training))
        return await self._sender.wait(request, f"training {training_id}", timeout)

    def list(self, status: TrainingStatus | None = None) -> AsyncIterator[TrainingSummary]:
        """Every training or those with a status, newest first, fetched page by page, without their requests."""
        query = {} if status is None else {"status": status}
        pages = self._sender.pages(page_request("/v1/trainings", TrainingList, **query))
        return (training async for page in pages for training in page.trainings)

    async def _receive(
        self, response: httpx2.Response, event_reader: EventReader
    ) -> AsyncGenerator[TrainingEvent, None]:
        async with aclosing(response):
            if event_reader.is_complete:
                return
            try:
                async for sent in httpx2.EventSource(response):
                    if (event := event_reader.read(sent)) is not None:
                        yield event
            except httpx2.RequestError as error:
                raise self._sender.connection.failure(error) from error


class AsyncTrainingCalls:
    """What a client says about trainings."""

    _sender: AsyncSender

    @cached_property
    def trainings(self) -> AsyncTrainings:
        """The trainings of the tenant."""
        return AsyncTrainings(self._sender)

    async def train(
        self,
        task: str,
        examples: Examples,
        *,
        validation: Examples | float | None = None,
        wait: bool = True,
        **options: Unpack[TrainingOptions],
    ) -> Training:
        """Train an adapter on the server and publish it as a version of `task`; returns the training that succeeded.

        `examples` are rows (dictionaries with a text and a label), or the path of a JSONL, CSV or TSV file, and
        `validation` too, or the share of the examples to validate on. With `wait` false it returns the queued
        training. Many rows and paths are uploaded as files, which the server deletes when the training has succeeded
        or was cancelled, unless `keep_examples` is true. Raises `TrainingFailed` with the reason.
        """
        training = await begin_training(self._sender, task, examples, validation, options)
        return succeeded(await self.trainings.wait(training.id)) if wait else training


async def begin_training(
    sender: AsyncSender,
    task: str,
    examples: Examples,
    validation: Examples | float | None,
    options: TrainingOptions,
) -> Training:
    """Queue a training, after the upload of what is too long to be sent with it."""
    sources, files, uploaded = read_sources(examples, validation), AsyncFiles(sender), TrainingSources()
    try:
        for key, upload in sources.uploads.items():
            uploaded[key] = (await files.create(upload.content, upload.name)).id
            uploaded["owns_files"] = True
        asked: NewTraining = {**options, **sources.inline, **uploaded}
        return await AsyncTrainings(sender).create(task, **asked)
    except PeltierError:
        ids = (uploaded.get("file_id"), uploaded.get("validation_file_id"))
        await _delete(files, filter(None, ids))
        raise


async def _delete(files: AsyncFiles, ids: Iterable[str]) -> None:
    for file_id in ids:
        try:
            await files.delete(file_id)
        except PeltierError as error:
            logger.warning("the file %s of a training is not deleted: %s", file_id, error)
