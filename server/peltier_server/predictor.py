"""One request's way through the rooms: resolve, tokenise, lease, queue, answer."""

import asyncio
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from peltier_adapters.answers import answer
from peltier_adapters.artifact import Artifact
from peltier_adapters.bank import Resident
from peltier_adapters.batch import Row, RowOutput, encode_input
from peltier_adapters.blobs import BlobNotFound
from peltier_adapters.errors import AdapterError, InputError
from peltier_adapters.manifest import TaskSpec
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded
from peltier_client.errors import DeadlinePassed, InferenceFailed, InvalidInput
from peltier_client.protocol import (
    AnyPrediction,
    BatchInfo,
    ClassificationPrediction,
    Input,
    MultilabelPrediction,
    Parameters,
    PredictResponse,
    RegressionPrediction,
    TaskReference,
    Timings,
    Usage,
)

from peltier_server.batcher import Batcher, Outcome
from peltier_server.catalog import Catalog, Entry
from peltier_server.slots import Lease, Slots, Tier

# Below these, handing the work to a thread costs more than the work.
_CHARS_ON_THE_LOOP = 4096
_ANSWERS_ON_THE_LOOP = 64
_NUM_WORKERS = 2


@dataclass(frozen=True)
class Prediction:
    """The body of an answer, and the tier in which its adapter was found."""

    response: PredictResponse
    tier: Tier


@dataclass(frozen=True)
class _Request:
    """What is asked, and until when in seconds of `time.monotonic`."""

    reference: TaskReference
    inputs: tuple[Input, ...]
    parameters: Parameters
    deadline: float


class Predictor:
    """Answers inputs with the adapter that a task names. Every failure is a `PeltierError`."""

    def __init__(
        self, backbone: Backbone, catalog: Catalog, slots: Slots[Artifact, Resident], batcher: Batcher, max_inputs: int
    ) -> None:
        self._backbone = backbone
        self._catalog = catalog
        self._slots = slots
        self._batcher = batcher
        self._max_inputs = max_inputs
        # Of its own, so that megabytes of text never keep an adapter from loading.
        self._workers = ThreadPoolExecutor(_NUM_WORKERS, thread_name_prefix="tokenizer")

    def close(self) -> None:
        """Lets its threads end."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def predict(self, task: str, inputs: Sequence[Input], parameters: Parameters) -> Prediction:
        """One prediction per input, in order, by the version that `task` refers to when the request arrives."""
        self.check_count(len(inputs), "inputs")
        reference = TaskReference.parse(task)
        entry = self._catalog.resolve(reference)
        timeout = math.inf if parameters.timeout_ms is None else parameters.timeout_ms / 1000
        # The batcher keeps the deadline for rows that wait; this clock also runs during loads and batches.
        clock = asyncio.timeout(None if parameters.timeout_ms is None else timeout)
        try:
            async with clock:
                request = _Request(reference, tuple(inputs), parameters, time.monotonic() + timeout)
                return await self._predict_live(entry, request)
        except TimeoutError:
            if not clock.expired():
                raise
            raise DeadlinePassed(f"no answer within timeout_ms = {parameters.timeout_ms}") from None

    def check_count(self, count: int, what: str) -> None:
        """Raises `InvalidInput` where one request brings more than is allowed."""
        if count > self._max_inputs:
            raise InvalidInput(f"the request has {count} {what}; at most {self._max_inputs} are allowed")

    async def _predict_live(self, entry: Entry, request: "_Request") -> Prediction:
        while True:
            try:
                return await self._predict_with(entry, request)
            except BlobNotFound as error:
                # It may have been deleted since it was resolved; then the reference means another version, or nothing.
                successor = self._catalog.resolve(request.reference)
                if successor.version == entry.version:
                    raise InferenceFailed(f"{_named(entry)} cannot be loaded: {error}") from error
                entry = successor
            except AdapterError as error:
                raise InferenceFailed(f"{_named(entry)} cannot be loaded: {error}") from error

    async def _predict_with(self, entry: Entry, request: "_Request") -> Prediction:
        started = time.monotonic()
        task, parameters = entry.manifest.task, request.parameters
        encoded = await self._encode(task, request.inputs, truncate=parameters.truncate)
        async with self._slots.lease(entry.digest) as lease:
            rows = [Row(one, lease.resident) for one in encoded]
            outcomes = await self._batcher.compute(
                rows, deadline=request.deadline, record_gates=parameters.return_gates
            )
        outputs = [outcome.output for outcome in outcomes]
        predictions = await _answer(task, outputs, parameters)
        last = max(outcomes, key=lambda outcome: outcome.queue_seconds)
        response = PredictResponse(
            task=entry.version.name,
            adapter=entry.reference(),
            predictions=predictions,
            usage=Usage(tokens=sum(map(len, encoded))),
            timings_ms=_timings(lease, last, time.monotonic() - started),
            batch=BatchInfo(rows=last.batch_rows, adapters=last.batch_adapters),
        )
        return Prediction(response, lease.tier)

    async def _encode(self, task: TaskSpec, inputs: Sequence[Input], *, truncate: bool) -> list[Encoded]:
        chars = sum(len(one) if isinstance(one, str) else len(one[0]) + len(one[1]) for one in inputs)
        if chars <= _CHARS_ON_THE_LOOP:
            return _encode_all(self._backbone, task, inputs, truncate)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, _encode_all, self._backbone, task, inputs, truncate)


def _encode_all(backbone: Backbone, task: TaskSpec, inputs: Sequence[Input], truncate: bool) -> list[Encoded]:
    encoded, reasons = [], []
    for number, one in enumerate(inputs):
        try:
            encoded.append(encode_input(backbone, task, one, truncate=truncate))
        except InputError as error:
            reasons.append(f"input {number}: {error}" if len(inputs) > 1 else str(error))
    if reasons:
        more = f" (and {len(reasons) - 1} more inputs)" if len(reasons) > 1 else ""
        raise InvalidInput(f"{reasons[0]}{more}", reasons)
    return encoded


async def _answer(task: TaskSpec, outputs: Sequence[RowOutput], parameters: Parameters) -> list[AnyPrediction]:
    if len(outputs) <= _ANSWERS_ON_THE_LOOP:
        return _answer_all(task, outputs, parameters)
    return await asyncio.to_thread(_answer_all, task, outputs, parameters)


def _answer_all(task: TaskSpec, outputs: Sequence[RowOutput], parameters: Parameters) -> list[AnyPrediction]:
    return [_answer_one(task, output, parameters) for output in outputs]


def _answer_one(task: TaskSpec, output: RowOutput, parameters: Parameters) -> AnyPrediction:
    found = answer(task, output.logits, raw_scores=parameters.raw_scores, top_k=parameters.top_k)
    gates = output.gates if parameters.return_gates else None
    if found.value is not None:
        return RegressionPrediction(value=found.value, gates=gates)
    if found.labels is not None:
        return MultilabelPrediction(labels=list(found.labels), scores=found.scores, gates=gates)
    assert found.label is not None
    assert found.score is not None
    return ClassificationPrediction(label=found.label, score=found.score, scores=found.scores, gates=gates)


def _timings(lease: Lease[Resident], last: Outcome, total_seconds: float) -> Timings:
    seconds = (last.queue_seconds, lease.load_seconds, last.compute_seconds, total_seconds)
    queue, load, compute, total = (round(1000 * value, 3) for value in seconds)
    return Timings(queue=queue, load=load, compute=compute, total=total)


def _named(entry: Entry) -> str:
    return f"adapter {entry.version.name!r} version {entry.version.number}"
