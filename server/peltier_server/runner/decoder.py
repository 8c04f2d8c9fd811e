"""Decodes texts, which join and leave between steps, and isolates the texts that fail."""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from peltier_adapters.generation.generation import create_draft
from peltier_backbone.backbone import Backbone
from peltier_client.errors import DeadlinePassed, InferenceFailed, PeltierError, Unavailable

from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.ticket import Ticket, report_progress, settle
from peltier_server.runner.bisection import blame, free_memory
from peltier_server.runner.compute_guard import ComputeGuard, WorkerReplaced
from peltier_server.runner.decode_job import DecodeJob, StepStats
from peltier_server.runner.group import DecodeGroup

logger = logging.getLogger(__name__)


class PriceLearner(Protocol):
    """Learns the times of texts."""

    def learn(self, tickets: Sequence[Ticket], seconds: float) -> None:
        """Learns from the time of their first pass."""

    def learn_step(self, tickets: Sequence[Ticket], seconds: float) -> None:
        """Learns from the time of one step."""


class TextDecoder:
    """All texts in decoding. Belongs to the runner's thread; its methods raise only `WorkerReplaced`.

    New texts share the steps of one open group. If a step or a first pass fails, each half of its texts restarts in a
    group of its own. Decoding is deterministic, so callers notice only a delay. A text that fails alone affects no
    other text, and texts that are too many for the memory continue in smaller groups.
    """

    def __init__(
        self, backbone: Backbone, metrics: Metrics, guard: ComputeGuard, learner: PriceLearner | None = None
    ) -> None:
        self._backbone = backbone
        self._metrics = metrics
        self._guard = guard
        self._learner = learner
        self._groups: list[DecodeGroup] = []
        self._open: DecodeGroup | None = None
        self.num_failed = 0  # texts that failed alone, since the start

    @property
    def num_rows(self) -> int:
        """Rows of the next step."""
        return sum(group.num_rows for group in self._groups)

    @property
    def step_cost(self) -> int:
        """The cost of the next step, in tokens of the plain backbone."""
        return sum(group.stats.cost for group in self._groups)

    def join(self, tickets: Sequence[Ticket]) -> None:
        """Begins a text for each ticket."""
        if not tickets:
            return
        jobs = [DecodeJob(ticket, create_draft(self._backbone, ticket.row, ticket.asked)) for ticket in tickets]
        self._metrics.observe_start(tickets, jobs[0].started_at)
        group = self._open = self._open or self._new_group()
        if (error := self._try_to_join(group, jobs)) is not None:
            # Slots of the failed texts may stay occupied, so no new texts join this group.
            self._open = None
            self._separate(jobs, error)

    def step(self) -> Counter[str]:
        """Generates one token for every text. Cancelled and late texts leave before, finished texts after it.

        Returns the cost by tenant.
        """
        gained = Counter[str]()
        for group in list(self._groups):
            gained += self._step(group)
        self._groups = [group for group in self._groups if group.jobs]
        if self._open not in self._groups:
            self._open = None
        self._metrics.decode_rows.set(self.num_rows)
        return gained

    def _step(self, group: DecodeGroup) -> Counter[str]:
        started = time.monotonic()
        try:
            self._drop_ended(group, started)
            stats = group.stats
            if group.jobs:
                self._deliver(group, self._compute(group), stats)
        except WorkerReplaced:
            raise
        except BaseException as failure:
            error = _log_failure(group.jobs, failure)
        else:
            self._metrics.observe_step(time.monotonic() - started, stats.num_texts, stats.rows_by_tenant)
            return stats.cost_by_tenant
        self._groups.remove(group)
        self._separate(group.jobs, error)
        return Counter()

    def _compute(self, group: DecodeGroup) -> list[DecodeJob]:
        tickets = [job.ticket for job in group.jobs]
        started = time.monotonic()
        with self._guard.computing():
            stepped = group.step()
        if self._learner is not None:
            self._learner.learn_step(tickets, time.monotonic() - started)
        return stepped

    def _try_to_join(self, group: DecodeGroup, jobs: Sequence[DecodeJob]) -> PeltierError | None:
        started = time.monotonic()
        try:
            with self._guard.computing():
                group.join(jobs)
        except WorkerReplaced:
            raise
        except BaseException as failure:
            return _log_failure(jobs, failure)
        if self._learner is not None:
            self._learner.learn([job.ticket for job in jobs], time.monotonic() - started)
        return None

    def _drop_ended(self, group: DecodeGroup, now: float) -> None:
        late = [job for job in group.jobs if job.ticket.deadline <= now]
        errors = [DeadlinePassed(f"the deadline passed after {len(job.draft.ids)} new tokens") for job in late]
        settle([job.ticket for job in late], errors)
        group.drop([*late, *(job for job in group.jobs if job.ticket.gone)])

    def _deliver(self, group: DecodeGroup, jobs: Sequence[DecodeJob], stats: StepStats) -> None:
        ended = [(job, result) for job in jobs if (result := job.result(stats)) is not None]
        settle([job.ticket for job, _ in ended], [result for _, result in ended])
        group.drop([job for job, _ in ended])
        progressed = [
            (job.ticket, new_progress) for job in group.jobs if (new_progress := job.new_progress()) is not None
        ]
        report_progress([ticket for ticket, _ in progressed], [new_progress for _, new_progress in progressed])

    def _separate(self, jobs: Sequence[DecodeJob], error: PeltierError) -> None:
        # Not in the handler, where the traceback still keeps the tensors of the pass.
        if isinstance(error, Unavailable):
            free_memory(self._backbone)
        if len(jobs) == 1:
            self.num_failed += isinstance(error, InferenceFailed)
            settle([jobs[0].ticket], [error])
            return
        middle = len(jobs) // 2
        for half in (jobs[:middle], jobs[middle:]):
            for job in half:
                job.draft = create_draft(self._backbone, job.ticket.row, job.ticket.asked)
            group = self._new_group()
            if (failure := self._try_to_join(group, half)) is not None:
                self._groups.remove(group)
                self._separate(half, failure)

    def _new_group(self) -> DecodeGroup:
        group = DecodeGroup(self._backbone)
        self._groups.append(group)
        return group


def _log_failure(jobs: Sequence[DecodeJob], failure: BaseException) -> PeltierError:
    logger.error("%d texts failed in one step", len(jobs), exc_info=failure)
    return blame(failure)
