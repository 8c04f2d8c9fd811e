"""Counts the answers of guarded changes on this replica, computes shadows, and keeps other answers for feedback."""

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from peltier_client.errors import InferenceFailed, PeltierError, ServerError
from peltier_client.protocol.rollouts import JUDGED_TYPES
from peltier_store.registry.extensions.queue import create_holder_name
from peltier_store.registry.extensions.rollout_records import Report, StoredAnswer, StoredRollout
from peltier_store.registry.extensions.rollouts import added, compared

from peltier_server.catalog.published import PRODUCTION, Entry, Published
from peltier_server.extensions.rollouts.answers import answer_of, hash_input
from peltier_server.inference.prediction import Prediction
from peltier_server.inference.prediction_request import PredictionRequest
from peltier_server.metrics.metrics import Metrics
from peltier_server.service import Service

logger = logging.getLogger(__name__)

MAX_SHADOWS = 4
MAX_SHADOW_ROWS = 32
MAX_SHADOW_SECONDS = 30.0
# Between two reports to the registry.
MAX_BUFFERED_ANSWERS = 5_000
_MAX_UNMATCHED = 64

_Key = tuple[str, str, int]


class RolloutMetrics:
    """What this replica has decided, shadowed and been told."""

    def __init__(self, metrics: Metrics) -> None:
        self.decisions = metrics.counter(
            "peltier_rollouts_total", "Guarded changes that this replica decided: promoted or rolled_back", "result"
        )
        self.shadows = metrics.counter(
            "peltier_shadows_total", "Requests for shadowing candidates: computed, failed, or dropped", "result"
        )
        self.feedback = metrics.counter("peltier_feedback_total", "Feedback to answers: right or wrong", "result")
        self.judge_version = metrics.versions.counter(
            "peltier_adapter_feedback_total",
            "Feedback that this replica took to answers of a version: right or wrong",
            "result",
        )


class Recorder:
    """What this replica has seen of guarded changes since the last report, and answers outside of these, at most
    `recorded_rate` a second.

    Only requests of the adapter's own tenant count, so that nobody else can decide about a candidate. Belongs to the
    event loop.
    """

    def __init__(self, service: Service, recorded_rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._catalog, self._predictor, self._batcher = service.catalog, service.predictor, service.batcher
        self._shadows = service.metrics.group(RolloutMetrics).shadows
        self._recorded_rate = recorded_rate
        self._now, self._clock = service.store.registry.now, clock
        # The rollouts in progress by tenant, adapter and alias, once they are read.
        self.running: Mapping[tuple[str, str, str], StoredRollout] = {}
        self.is_ready = False
        self._second, self._num_recorded = -math.inf, 0
        self._counts: dict[str, dict[str, Any]] = {}
        self._answers: dict[_Key, StoredAnswer] = {}
        self._name, self._num_reports = create_holder_name(), 0
        self._unsent: Report | None = None
        # Under a share: requests of one arm that wait for one of the other, and whether they failed, by rollout.
        self._unmatched = defaultdict[str, list[tuple[bool, bool]]](list)
        # The shadows in progress, with the tenant and the id of the request.
        self.computing: dict[asyncio.Task[None], tuple[str, str]] = {}

    def follow(self, running: Iterable[StoredRollout]) -> None:
        """From now on these rollouts are in progress. Without one, and without a rate, answers are not observed."""
        self.running, self.is_ready = {(one.tenant, one.name, one.alias): one for one in running}, True
        if self.running or self._recorded_rate:
            self._predictor.observe(self.observe)
        else:
            self._predictor.stop_observing(self.observe)

    def may_count(self, tenant: str) -> bool:
        """Whether a rollout of the tenant is in progress, as far as is known."""
        return not self.is_ready or any(owner == tenant for owner, _, _ in self.running)

    def observe(self, request: PredictionRequest, outcome: Prediction | Exception) -> None:
        """Counts an answered or failed request, if its alias has a guarded change in progress; else keeps the
        answer."""
        try:
            if (found := self._find(request)) is not None:
                self._observe(*found, request, outcome)
            elif not isinstance(outcome, Exception):
                self._record(request, outcome)
        except Exception:
            # The caller has an answer.
            logger.exception("an answer of %s cannot be counted", request.target.reference)

    def take(self) -> Iterator[Report]:
        """A report of what was counted of each rollout, and of the answers, since the last one.

        Whoever asks for the next one has stored the one before. A report that is not stored for sure comes first in the
        next call, unchanged.
        """
        if self._unsent is not None:
            yield self._unsent
        self._unsent = None
        if self._counts or self._answers:
            self._num_reports += 1
            self._unsent = Report(self._name, self._num_reports, self._counts, list(self._answers.values()))
            self._counts, self._answers = {}, {}
            yield self._unsent
            self._unsent = None

    async def settle(self, tenant: str, request_id: str) -> None:
        """Returns once the shadows of a request are computed."""
        own = [task for task, key in self.computing.items() if key == (tenant, request_id)]
        await asyncio.gather(*own, return_exceptions=True)

    async def close(self) -> None:
        """Drops the shadows in progress."""
        tasks = list(self.computing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _find(self, request: PredictionRequest) -> tuple[Published, StoredRollout] | None:
        reference, version = request.target.reference, request.target.entry.version
        if reference.version is not None or version.tenant != request.tenant:
            return None
        rollout = self.running.get((version.tenant, version.name, reference.alias or PRODUCTION))
        published = self._catalog.find(version.tenant, version.name)
        return None if published is None or rollout is None else (published, rollout)

    def _observe(
        self, published: Published, rollout: StoredRollout, request: PredictionRequest, outcome: Prediction | Exception
    ) -> None:
        failed = isinstance(outcome, Exception)
        number = request.target.entry.number if isinstance(outcome, Exception) else outcome.opening.adapter.version
        if number not in (rollout.incumbent, rollout.candidate) or (failed and not is_failure(outcome)):
            return
        is_candidate = number == rollout.candidate
        arm = "candidate" if is_candidate else "incumbent"
        self._count(rollout.id, {arm: {"answers": 1, "failed": int(failed)}})
        if rollout.share is not None:
            self._match(rollout, is_candidate, failed)
        entry = published.entries[number]
        answers = [] if isinstance(outcome, Exception) else _answers(self._now(), rollout.id, entry, request, outcome)
        if rollout.share is not None or rollout.candidate not in published.entries:
            self._keep(answers)
        elif self.is_busy or len(request.inputs) > MAX_SHADOW_ROWS:
            self._drop(rollout, answers)
        else:
            # Also if the incumbent has failed: the errors of both versions are counted in the same requests.
            work = self._shadow(rollout, published.entries, request, answers, incumbent_failed=failed)
            task = asyncio.create_task(work)
            self.computing[task] = (request.tenant, request.target.context.request_id)
            task.add_done_callback(self.computing.pop)

    def _record(self, request: PredictionRequest, prediction: Prediction) -> None:
        """Keeps an answer outside of guarded changes, as far as this second's rate allows."""
        entry = request.target.entry
        is_judged = entry.task.type in JUDGED_TYPES and entry.number == prediction.opening.adapter.version
        if entry.version.tenant != request.tenant or not is_judged:
            return
        now = self._clock()
        if now - self._second >= 1:
            self._second, self._num_recorded = now, 0
        left = self._recorded_rate - self._num_recorded
        answers = _answers(self._now(), None, entry, request, prediction, left)
        self._num_recorded += len(answers)
        self._keep(answers)

    @property
    def is_busy(self) -> bool:
        """Whether the server has no time for another shadow."""
        return len(self.computing) >= MAX_SHADOWS or self._batcher.live_rows > 0

    def _match(self, rollout: StoredRollout, is_candidate: bool, failed: bool) -> None:
        """Compares a request with the newest one of the other version that waits."""
        if (pair := match(self._unmatched[rollout.id], is_candidate, failed)) is not None:
            self._count(rollout.id, compare_errors(*pair))

    async def _shadow(
        self, rollout: StoredRollout, entries: Mapping[int, Entry], request: PredictionRequest,
        answers: Sequence[StoredAnswer], *, incumbent_failed: bool,
    ) -> None:  # fmt: skip
        entry = entries[rollout.candidate]
        outcome = await self._attempt(entry, request)
        if isinstance(outcome, Exception) and not is_failure(outcome):
            self._drop(rollout, answers)
            return
        failed = isinstance(outcome, Exception)
        self._shadows.labels("failed" if failed else "computed").inc()
        self._count(rollout.id, {"candidate": {"answers": 1, "failed": int(failed)}})
        self._count(rollout.id, compare_errors(failed, incumbent_failed))
        if isinstance(outcome, Exception) or incumbent_failed or entry.task.type not in JUDGED_TYPES:
            self._keep(answers)
            return
        others = [answer_of(entry.task, one) for one in outcome.predictions]
        num_equal = sum(one.answer == other for one, other in zip(answers, others, strict=True))
        self._count(rollout.id, {"disagreement": {"wins": num_equal, "losses": len(others) - num_equal}})
        pairs = zip(answers, others, strict=True)
        self._keep([StoredAnswer(**{**vars(one), "shadow": other}) for one, other in pairs])

    async def _attempt(self, entry: Entry, request: PredictionRequest) -> Prediction | Exception:
        try:
            async with asyncio.timeout(MAX_SHADOW_SECONDS):
                return await self._predictor.repeat(entry, request)
        except Exception as error:
            return error

    def _drop(self, rollout: StoredRollout, answers: Sequence[StoredAnswer]) -> None:
        self._shadows.labels("dropped").inc()
        self._count(rollout.id, {"candidate": {"dropped": 1}})
        self._keep(answers)

    def _keep(self, answers: Sequence[StoredAnswer]) -> None:
        for one in answers[: MAX_BUFFERED_ANSWERS - len(self._answers)]:
            self._answers[one.tenant, one.request_id, one.row] = one

    def _count(self, rollout_id: str, more: Mapping[str, Any]) -> None:
        self._counts[rollout_id] = added(self._counts.get(rollout_id, {}), more)


def is_failure(error: object) -> bool:
    """Whether an error is the version's, and not the caller's or that of a busy server."""
    return isinstance(error, InferenceFailed | ServerError) or not isinstance(error, PeltierError | TimeoutError)


def match(waiting: list[tuple[bool, bool]], is_candidate: bool, failed: bool) -> tuple[bool, bool] | None:
    """Whether the candidate and the incumbent have failed in the requests that are compared under a share: this one,
    and the newest one of the other version that waits. If none does, this one waits."""
    if not waiting or waiting[-1][0] == is_candidate:
        waiting.append((is_candidate, failed))
        del waiting[:-_MAX_UNMATCHED]
        return None
    other = waiting.pop()[1]
    return (failed, other) if is_candidate else (other, failed)


def compare_errors(candidate_failed: bool, incumbent_failed: bool) -> dict[str, Any]:
    """One comparison of whether two requests failed, as counts."""
    return {"errors": compared(not candidate_failed, not incumbent_failed)}


def _answers(  # noqa: PLR0913 - what an answer is
    at: datetime, rollout_id: str | None, entry: Entry, request: PredictionRequest, prediction: Prediction,
    max_rows: int | None = None,
) -> list[StoredAnswer]:  # fmt: skip
    request_id = request.target.context.request_id
    rows = list(zip(request.inputs, prediction.predictions, strict=False))[:max_rows]
    return [
        StoredAnswer(
            request.tenant, request_id, row, entry.version.name, rollout_id, entry.number, answer_of(entry.task, one),
            None, hash_input(value), at,
        )
        for row, (value, one) in enumerate(rows, request.first_row)
    ]  # fmt: skip
