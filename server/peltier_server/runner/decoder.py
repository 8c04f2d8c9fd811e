"""Decodes texts, which join and leave between steps, and isolates the texts that fail."""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from peltier_adapters.batch.runner import Runner
from peltier_adapters.generation import Draft, Generator, create_draft
from peltier_adapters.residency.bank import Resident
from peltier_backbone.backbone import Backbone
from peltier_client.errors import DeadlinePassed, InferenceFailed, PeltierError, Unavailable

from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.batcher import Batcher
from peltier_server.queue.ticket import NewTokens, RowsOutcome, Ticket, report_progress, settle
from peltier_server.runner.isolation import NOT_FINITE, ComputeGuard, NotFinite, WorkerReplaced, blame, free_memory

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class DecodeJob:
    """A ticket and its draft, which each join begins anew. `sent` are the tokens that the ticket's listener has
    received. Times are seconds of `time.monotonic`."""

    ticket: Ticket
    draft: Draft = field(init=False)
    started_at: float = field(default_factory=time.monotonic)
    sent: list[int] = field(default_factory=list)

    @property
    def queue_seconds(self) -> float:
        """The time in the queue."""
        return self.started_at - self.ticket.queued_at

    @property
    def compute_seconds(self) -> float:
        """The decoding time so far."""
        return time.monotonic() - self.started_at

    def result(self, stats: "StepStats") -> RowsOutcome[Draft] | PeltierError | None:
        """The caller's result; None while the draft is unfinished."""
        if self.draft.failed:
            return NotFinite(NOT_FINITE)
        if self.sent and not self._repeats():
            return InferenceFailed("the generation was not reproducible after a restart")
        if not self.draft.done:
            return None
        return RowsOutcome([self.draft], self.queue_seconds, self.compute_seconds, stats.num_rows, stats.num_adapters)

    def new_progress(self) -> NewTokens | None:
        """Takes the tokens that the listener has not received yet."""
        new = tuple(self.draft.ids[len(self.sent) :])
        if self.ticket.listener is None or not new:
            return None
        self.sent += new
        return NewTokens(new, self.queue_seconds, self.compute_seconds)

    def _repeats(self) -> bool:
        ids = self.draft.ids
        return ids[: len(self.sent)] == self.sent[: len(ids)]


class StepStats:
    """Who shares a step: texts, rows (a text with beams has several), their tenants, distinct adapters, and `cost` in
    tokens of the plain backbone."""

    def __init__(self, jobs: Sequence[DecodeJob]) -> None:
        self.num_texts = len(jobs)
        self.num_rows = sum(job.ticket.num_beams for job in jobs)
        self.rows_by_tenant = Counter[str]()
        self.cost_by_tenant = Counter[str]()
        adapters = set[Resident]()
        for ticket in (job.ticket for job in jobs):
            self.rows_by_tenant[ticket.tenant] += ticket.num_beams
            self.cost_by_tenant[ticket.tenant] += ticket.step_cost
            if ticket.row.resident is not None and ticket.row.resident not in adapters:
                adapters.add(ticket.row.resident)
                self.cost_by_tenant[ticket.tenant] += ticket.price.step_weights
        self.num_adapters = len(adapters)
        self.cost = sum(self.cost_by_tenant.values())


class DecodeGroup:
    """Jobs over one generator. A group whose step has raised must not be used again.

    `joined` have been added since the last step, by first passes that took `join_seconds` on the host. On a GPU a pass
    ends only with the next step, whose tokens the host reads.
    """

    def __init__(self, backbone: Backbone, runner: Runner) -> None:
        self._generator = Generator(backbone, runner)
        self._jobs: dict[Draft, DecodeJob] = {}
        self._stats: StepStats | None = None
        self.joined: list[DecodeJob] = []
        self.join_seconds = 0.0

    @property
    def jobs(self) -> tuple[DecodeJob, ...]:
        """The jobs of the next step."""
        return tuple(self._jobs.values())

    @property
    def stats(self) -> StepStats:
        """The stats of the next step; they change when a job joins or leaves."""
        if self._stats is None:
            self._stats = StepStats(self.jobs)
        return self._stats

    @property
    def num_rows(self) -> int:
        """The rows of the next step."""
        return self._generator.num_rows

    def join(self, jobs: Sequence[DecodeJob]) -> None:
        """Computes the first pass of `jobs` and adds them; if it raises, none is added."""
        started = time.monotonic()
        self._generator.join([job.draft for job in jobs])
        self.join_seconds += time.monotonic() - started
        self.joined += jobs
        self._jobs |= {job.draft: job for job in jobs}
        self._stats = None

    def drop(self, jobs: Sequence[DecodeJob]) -> None:
        """Removes jobs, if they are still in the group, and frees their slots."""
        if not jobs:
            return
        self._generator.drop([job.draft for job in jobs])
        for job in jobs:
            self._jobs.pop(job.draft, None)
        self._stats = None

    def step(self) -> list[DecodeJob]:
        """Generates one token for each job; returns the jobs."""
        return [self._jobs[draft] for draft in self._generator.step()]


class TextDecoder:
    """All texts in decoding. Belongs to the runner's thread; its methods raise only `WorkerReplaced`.

    New texts share the steps of one open group. If a step or a first pass fails, each half of its texts restarts in a
    group of its own. Decoding is deterministic, so callers notice only a delay. A text that fails alone affects no
    other text, and texts that are too many for the memory continue in smaller groups.
    """

    def __init__(
        self,
        backbone: Backbone,
        runner: Runner,
        metrics: Metrics,
        guard: ComputeGuard,
        batcher: Batcher | None = None,
    ) -> None:
        self._backbone = backbone
        self._runner = runner
        self._metrics = metrics
        self._guard = guard
        self._batcher = batcher
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
        jobs = [DecodeJob(ticket) for ticket in tickets]
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
        seconds, joined = group.join_seconds + time.monotonic() - started, [job.ticket for job in group.joined]
        group.joined, group.join_seconds = [], 0.0
        if self._batcher is not None:
            self._batcher.learn_step(tickets, seconds, joined=joined)
        return stepped

    def _try_to_join(self, group: DecodeGroup, jobs: Sequence[DecodeJob]) -> PeltierError | None:
        try:
            for job in jobs:
                job.draft = create_draft(self._backbone, job.ticket.row, job.ticket.asked)
            with self._guard.computing():
                group.join(jobs)
        except WorkerReplaced:
            raise
        except BaseException as failure:
            return _log_failure(jobs, failure)
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
            group = self._new_group()
            if (failure := self._try_to_join(group, half)) is not None:
                self._groups.remove(group)
                self._separate(half, failure)

    def _new_group(self) -> DecodeGroup:
        group = DecodeGroup(self._backbone, self._runner)
        self._groups.append(group)
        return group


def _log_failure(jobs: Sequence[DecodeJob], failure: BaseException) -> PeltierError:
    logger.error("%d texts failed in one step", len(jobs), exc_info=failure)
    return blame(failure)
