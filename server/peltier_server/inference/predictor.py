"""Answers one request: resolve the task, tokenise the inputs, lease the adapter, queue the rows, read the answer."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any

from peltier_adapters.answers import vectors
from peltier_adapters.answers.entities import tag_row
from peltier_adapters.batch.row import Row
from peltier_adapters.errors import AdapterError
from peltier_adapters.inputs import TooManyWindows
from peltier_adapters.residency.bank import Resident
from peltier_adapters.spec.decoding import Decoding
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_client.errors import DeadlinePassed, InferenceFailed, InvalidInput, PeltierError, Unavailable
from peltier_client.protocol.names import BACKBONE_TASK, TaskReference, group_prefix
from peltier_client.protocol.predict import MAX_PRIORITY, Input, Parameters
from peltier_store.blobs.blobs import BlobDamaged, BlobError, BlobNotFound, BlobStoreGone

from peltier_server import retry_hints
from peltier_server.catalog.catalog import Catalog
from peltier_server.catalog.published import Entry
from peltier_server.context import RequestContext
from peltier_server.fairness.preparation import Preparation
from peltier_server.inference.answer_size import (
    AnswerBudget,
    AnswerForm,
    AnswerSize,
    count_windows,
    measure_answer,
    measure_vectors,
)
from peltier_server.inference.backbone_task import BackboneTask
from peltier_server.inference.prediction import Prediction, StreamStart
from peltier_server.inference.prediction_request import (
    PredictionRequest,
    ResolvedTask,
    add_prompt,
    check_parameters,
    check_stream,
    choose_decoding,
    draws,
    example_of,
)
from peltier_server.inference.quarantine import Quarantine
from peltier_server.inference.response import AnswerReader, count_new_tokens, create_timings, group_windows
from peltier_server.inference.text_stream import StreamedText
from peltier_server.inference.tokenizing import EncodedInput, Reading, encode_inputs
from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.batcher import Batcher
from peltier_server.queue.ticket import Reduce, RowsOutcome, Terms
from peltier_server.residency.slots import Slots
from peltier_server.residency.tiers import Lease
from peltier_server.runner.isolation import NotFinite
from peltier_server.tracing import RequestTrace

logger = logging.getLogger(__name__)

_NOTHING = nullcontext()

# Gets a request with its answer, or with the error that it failed with.
OnAnswer = Callable[[PredictionRequest, Prediction | Exception], None]


def load_failure(entry: Entry, request_id: str, error: AdapterError) -> PeltierError:
    """The error for the caller. The log alone says where the store is and how it fails."""
    version = entry.version
    what = f"adapter {version.name!r} version {version.number} cannot be loaded"
    if not isinstance(error, BlobError):
        return InferenceFailed(f"{what}: {error}")
    if isinstance(error, BlobStoreGone):
        # The log already has one record that the store is gone.
        return Unavailable(f"{what}, as the server's store is gone", retry_after=retry_hints.SOON)
    # Callers of a public adapter are other tenants, so only the log tells where the store is and how it fails.
    logger.error("request %s: %s's %s: %s", request_id, version.tenant, what, error)
    reason = "the server's log has the reason"
    if isinstance(error, BlobNotFound | BlobDamaged):
        return InferenceFailed(f"{what}, as its stored bytes are missing or damaged; {reason}")
    return Unavailable(f"{what} just now; {reason}", retry_after=retry_hints.SOON)


class _Purged(Exception):
    """The version of a request has been purged since it was resolved, and its reference names another one."""


@dataclass(frozen=True)
class Guards:
    """`preparation` bounds each request and each tenant, and `quarantine` each version. `metrics` counts truncated
    inputs."""

    preparation: Preparation
    quarantine: Quarantine
    metrics: Metrics


class Predictor:
    """Answers inputs with the adapter that a task names. Every failure is a `PeltierError`."""

    def __init__(self, backbone: Backbone, catalog: Catalog, slots: Slots, batcher: Batcher, guards: Guards) -> None:
        self._backbone = backbone
        self._catalog = catalog
        self._slots = slots
        self._batcher = batcher
        self._guards = guards
        self._limits = guards.preparation.limits
        self._reader = AnswerReader(backbone, guards.preparation)
        self._observers: frozenset[OnAnswer] = frozenset()

    def observe(self, on_answer: OnAnswer) -> None:
        """Calls `on_answer` for each answered request before its caller gets the answer. It must not raise."""
        self._observers |= {on_answer}

    def stop_observing(self, on_answer: OnAnswer) -> None:
        """Calls it no more."""
        self._observers -= {on_answer}

    def expand_groups(self, context: RequestContext, tasks: Sequence[str]) -> list[str]:
        """`tasks` with the members of each group in its place; a group without members stays. Raises `InvalidInput` if
        they are too many for one request."""
        expanded: list[str] = []
        for task in tasks:
            prefix = group_prefix(task)
            members = () if prefix is None else self._catalog.names(context.tenant, prefix)
            expanded += list(islice(members, self._limits.max_inputs + 1)) or [task]
            self.check_count(len(expanded), "tasks")
        return expanded

    def resolve(self, context: RequestContext, task: str) -> ResolvedTask:
        """The version that `task` names now. Raises `NotFound` if there is no such version that the caller may use."""
        with _NOTHING if context.trace is None else context.trace.resolving(task):
            reference = TaskReference.parse(task)
            if reference.name == BACKBONE_TASK:
                own = self._backbone_task
                return ResolvedTask(reference, context, own.entry, own.artifact)
            return ResolvedTask(reference, context, self._catalog.resolve(reference, context))

    @cached_property
    def _backbone_task(self) -> BackboneTask:
        return BackboneTask.of(self._backbone)

    def open_answer(self, context: RequestContext, *, base64: bool = False) -> AnswerBudget:
        """The budget that the parts of one HTTP answer share. With `base64` its embeddings are in base64."""
        return AnswerBudget(self._limits, context, base64=base64)

    async def predict(
        self, target: ResolvedTask, inputs: Sequence[Input], parameters: Parameters, budget: AnswerBudget | None = None
    ) -> Prediction:
        """One prediction per input, in order. They take their bytes from `budget`; without it they are the whole HTTP
        answer."""
        self.check_count(len(inputs), "inputs")
        budget = budget or self.open_answer(target.context)
        return await self.answer(PredictionRequest(target, inputs, parameters, budget))

    async def score(
        self, target: ResolvedTask, query: str, documents: Sequence[str], parameters: Parameters, budget: AnswerBudget
    ) -> Prediction:
        """The score of each document for a query, by the vectors of their tokens (`vectors.similarity`). The caller has
        counted the documents."""
        return await self.answer(PredictionRequest(target, (*documents, query), parameters, budget, ranks=True))

    def stream(
        self, target: ResolvedTask, text: Input, parameters: Parameters, budget: AnswerBudget | None = None,
        *, row: int = 0,
    ) -> StreamedText:  # fmt: skip
        """The answer to one input, as a stream. With `budget`, it is the answer `row` of several that share the budget,
        and the caller has already counted their inputs as in progress."""
        stream, is_counted = StreamedText(self._backbone.tokenizer), budget is not None
        budget = budget or self.open_answer(target.context)
        request = PredictionRequest(
            target, (text,), parameters, budget, stream=stream, is_counted=is_counted, first_row=row
        )
        stream.start(self.answer(request))
        return stream

    def max_new_tokens(self, target: ResolvedTask) -> int:
        """The maximum of tokens of a text that `target` generates. Raises `InvalidInput` if it generates no texts."""
        spec = target.entry.task.decoding
        if spec is None:
            task = str(target.reference)
            raise InvalidInput(f"task {task!r} does not generate texts; its answers are at /v1/tasks/{task}/predict")
        return min(spec.max_new_tokens, self._limits.max_new_tokens)

    def check_count(self, count: int, what: str) -> None:
        """Raises `InvalidInput` if one request may not have `count` inputs. `what` names the inputs in the message."""
        if count > self._limits.max_inputs:
            raise InvalidInput(f"the request has {count} {what}; at most {self._limits.max_inputs} are allowed")

    async def repeat(self, entry: Entry, request: PredictionRequest) -> Prediction:
        """The answer of another version to an answered request. It counts for no quota, and every other row of the
        tenant goes first."""
        parameters = request.parameters.model_copy(update={"priority": -MAX_PRIORITY, "timeout_ms": None})
        return await self._attempt(entry, self._uncharged(entry, request, request.inputs, parameters))

    def _uncharged(
        self, entry: Entry, request: PredictionRequest, inputs: Sequence[Input], parameters: Parameters
    ) -> PredictionRequest:
        """Other inputs of the same caller for a version, whose answer is for nobody."""
        whose = request.target.context
        context = RequestContext(whose.request_id, known_caller=whose.known_caller)
        target = ResolvedTask(request.target.reference, context, entry, request.target.artifact)
        ranks = request.ranks and inputs is request.inputs
        return PredictionRequest(target, inputs, parameters, self.open_answer(context), ranks=ranks, is_charged=False)

    async def answer(self, request: PredictionRequest) -> Prediction:
        """The answer to a request, or its error, which the observers get too."""
        try:
            prediction = await self._answer_in_time(request)
        except Exception as error:
            for on_answer in self._observers:
                on_answer(request, error)
            raise
        for on_answer in self._observers:
            on_answer(request, prediction)
        return prediction

    async def _answer_in_time(self, request: PredictionRequest) -> Prediction:
        """The answer to inputs that are counted as in progress, within the deadline."""
        counted = self._guards.preparation.inputs
        holding = _NOTHING if request.is_counted else counted.hold(request.tenant, len(request.inputs))
        deadline = request.deadline
        # The batcher enforces the deadline for waiting rows; this timeout also covers loads and running batches.
        clock = asyncio.timeout(None if deadline is None else deadline - time.monotonic())
        try:
            with holding:
                async with clock:
                    return await self._answer_live(request)
        except TimeoutError:
            if not clock.expired():
                raise
            raise DeadlinePassed(f"no answer within timeout_ms = {request.parameters.timeout_ms}") from None

    async def _answer_live(self, request: PredictionRequest) -> Prediction:
        """The answer of the version. If it has been purged since it was resolved, the one that the reference names now
        answers."""
        target = request.target
        entry = target.entry
        while True:
            try:
                return await self._attempt(entry, request)
            except _Purged:
                entry = self._catalog.resolve(target.reference, target.context)

    async def _attempt(self, entry: Entry, request: PredictionRequest) -> Prediction:
        """The answer of a version that is not in quarantine. An output that is not finite counts against the version
        only if that for an example is not finite either. Otherwise it is the input's failure: anybody could shut a
        version for its other callers by inputs of that kind. Raises `load_failure` if it cannot be loaded."""
        with self._guards.quarantine.attempt(request.tenant, entry):
            try:
                return await self._predict(entry, request)
            except NotFinite as error:
                if await self._fails_example(entry, request):
                    raise InferenceFailed(error.message, error.details) from error
                raise
            except AdapterError as error:
                raise load_failure(entry, request.target.context.request_id, error) from error

    async def _fails_example(self, entry: Entry, request: PredictionRequest) -> bool:
        """Whether a version is known to compute no finite output for a plain text."""
        inputs, parameters = example_of(entry.task, request.parameters)
        try:
            await self._predict(entry, self._uncharged(entry, request, inputs, parameters))
        except InferenceFailed:
            return True
        except (PeltierError, AdapterError):  # such as a full queue
            return False
        return False

    async def _predict(self, entry: Entry, request: PredictionRequest) -> Prediction:
        """The answer of a version. Raises `_Purged` if another one may answer a caller instead."""
        started, context, tenant = time.monotonic(), request.target.context, request.tenant
        task, budget, artifact = entry.task, request.budget, request.target.artifact
        decoding, form, size = self._check(entry, request)
        budget.take(size)
        encoded: list[EncodedInput] = []
        try:
            if artifact is None:
                self._slots.prefetch(entry.owned, tenant)
            encoded = await self._encode(request, task)
            num_tokens = sum(len(row) for rows in encoded for row in rows)
            if task.type == "multi-vector-embedding":
                num_vectors = sum(map(len, encoded[-1])) if request.ranks else num_tokens
                size = budget.change(size, measure_vectors(entry, len(encoded), num_vectors, form))
            enforcer, num_written = self._guards.preparation.enforcer, _max_written(decoding, encoded)
            spending = enforcer.spend(tenant, num_tokens + num_written) if request.is_charged else _NOTHING
            async with spending, self._slots.lease(entry.owned, tenant, artifact) as lease:
                opening = StreamStart(entry.reference, lease.tier, num_tokens, _num_truncated(encoded))
                self._guards.metrics.observe_truncation(tenant, opening.num_truncated)
                if request.stream is not None:
                    request.stream.open(opening)
                leased_at = time.monotonic()
                outcome = await self._compute(task, encoded, lease.resident, decoding, request)
        except BlobNotFound:
            # Another version takes its own bytes and windows.
            budget.give_back(size, count_windows(encoded))
            if request.is_charged and self._catalog.resolve(request.target.reference, context).digest != entry.digest:
                raise _Purged from None
            raise
        if context.trace is not None:
            _trace_work(context.trace, leased_at, lease, outcome)
        outputs = group_windows(request.inputs, encoded, outcome.outputs) if task.reads_tokens else outcome.outputs
        predictions = await self._reader.read(outputs, form, request)
        num_new_tokens, timings = count_new_tokens(outputs), create_timings(lease, outcome, time.monotonic() - started)
        return Prediction(opening, predictions, num_new_tokens, timings, outcome.batch_rows, outcome.batch_adapters)

    def _check(self, entry: Entry, request: PredictionRequest) -> tuple[Decoding | None, AnswerForm, AnswerSize]:
        """How the answer is decoded, its form and its size. Raises `InvalidInput` if the parameters do not fit."""
        task, parameters = entry.task, request.parameters
        decoding = choose_decoding(task, parameters, max_new_tokens=self._limits.max_new_tokens)
        check_parameters(task, parameters)
        if request.stream is not None:
            check_stream(decoding)
        form = AnswerForm(
            task, parameters, request.top_k(task, self._limits.default_top_k), request.budget.base64, request.ranks
        )
        size = measure_answer(entry, len(request.inputs), form, decoding, self._backbone.config.num_layers)
        return decoding, form, size

    async def _encode(self, request: PredictionRequest, task: TaskSpec) -> list[EncodedInput]:
        budget = request.budget
        reading = Reading(self._backbone, task, request.parameters, budget.windows_left)
        config, name = self._backbone.config, request.parameters.prompt_name
        if name is None and request.target.artifact is not None:
            name = config.default_prompt  # adapters read texts as they are, as in training
        inputs = add_prompt(config.sentence_prompts, name, request.inputs)
        try:
            encoded = await encode_inputs(self._guards.preparation, reading, request.tenant, inputs, request.reader)
        except TooManyWindows as error:
            raise budget.too_many_windows(error.excess) from None
        budget.take_windows(count_windows(encoded))
        return encoded

    async def _compute(
        self, task: TaskSpec, encoded: Sequence[EncodedInput], resident: Resident, decoding: Decoding | None,
        request: PredictionRequest,
    ) -> RowsOutcome[Any]:  # fmt: skip
        parameters, tenant, bare = request.parameters, request.tenant, request.target.artifact is not None
        rows = [Row(one, resident, bare, scope=tenant) for own in encoded for one in own]
        deadline = math.inf if request.deadline is None else request.deadline
        context = request.target.context
        terms = Terms(tenant, deadline, parameters.priority, context.trace, context.is_background)
        if decoding is None:
            inputs = None
            if len(rows) > len(encoded):
                inputs = [number for number, own in enumerate(encoded) for _ in own]
            if request.ranks:
                return await self._score(rows, terms, parameters)
            gates, reduce = parameters.return_gates, _reducer(task, parameters)
            return await self._batcher.compute(rows, terms, inputs=inputs, record_gates=gates, reduce=reduce)
        listener = None if request.stream is None else request.stream.on_progress
        return await self._batcher.write(rows, draws(decoding, parameters, len(rows)), terms, listener=listener)

    async def _score(self, rows: Sequence[Row], terms: Terms, parameters: Parameters) -> RowsOutcome[Any]:
        """The scores of all rows but the last for the last one, which is the query. The vectors of a row are freed with
        its batch."""
        asked = await self._batcher.compute(rows[-1:], terms, reduce=vectors.read_row)
        score = partial(vectors.score_row, query=asked.outputs[0].logits, mean=not parameters.raw_scores)
        found = await self._batcher.compute(rows[:-1], terms, reduce=score)
        return found._replace(
            queue_seconds=asked.queue_seconds + found.queue_seconds,
            compute_seconds=asked.compute_seconds + found.compute_seconds,
        )


def _reducer(task: TaskSpec, parameters: Parameters) -> Reduce | None:
    """What makes the part of an output that an answer of the task needs; None if it needs the whole output."""
    if task.type == "token-classification":
        return tag_row
    if task.type == "multi-vector-embedding":
        return partial(vectors.read_row, raw=parameters.raw_scores)
    return None


def _trace_work(trace: RequestTrace, leased_at: float, lease: Lease, outcome: RowsOutcome[Any]) -> None:
    trace.add("load", leased_at - lease.load_seconds, leased_at, {"peltier.tier": lease.tier})
    trace.add_work(leased_at, outcome.queue_seconds, outcome.compute_seconds, outcome.batch_span)


def _num_truncated(encoded: Sequence[EncodedInput]) -> int:
    return sum(rows[0].truncated for rows in encoded)


def _max_written(decoding: Decoding | None, encoded: Sequence[EncodedInput]) -> int:
    return 0 if decoding is None else len(encoded) * decoding.num_beams * decoding.max_new_tokens
