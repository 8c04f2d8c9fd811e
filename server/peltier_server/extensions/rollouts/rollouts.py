"""Guarded changes of aliases on this replica: they begin here, get feedback, and are decided by any replica."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from peltier_adapters.errors import AdapterError
from peltier_client.errors import AnswerNotFound, InvalidInput
from peltier_client.protocol.rollouts import (
    JUDGED_TYPES,
    Feedback,
    FeedbackRequest,
    Rollout,
    RolloutGuard,
    RolloutState,
)
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.extensions.rollout_records import (
    AnswerUnknown,
    GuardedAlias,
    Judgement,
    Retention,
    StoredAnswer,
    StoredRollout,
)
from peltier_store.registry.records import RegistrySnapshot

from peltier_server.auth.keyring import Caller
from peltier_server.background import BackgroundTask
from peltier_server.context import VersionLabels
from peltier_server.extensions.rollouts.answers import UNJUDGED, right_answer
from peltier_server.extensions.rollouts.decision import decide
from peltier_server.extensions.rollouts.recorder import Recorder, RolloutMetrics
from peltier_server.extensions.rollouts.settings import FeedbackSettings
from peltier_server.service import Service

logger = logging.getLogger(__name__)

_REPORT_SECONDS = 1.0
# A feedback may arrive before another replica has reported the answer.
_WAIT_SECONDS = 1.25 * _REPORT_SECONDS
_ACTOR = "guard"


class Rollouts:
    """Begins and stops guarded changes, and takes feedback. Every second it reports what this replica has counted, and
    decides. Belongs to the event loop."""

    def __init__(self, service: Service) -> None:
        settings, registry = service.settings.group(FeedbackSettings), service.store.registry
        self._registry, self._now = registry.rollouts, registry.now
        self._catalog, self._sync = service.catalog, service.store.sync
        self._keep = Retention(timedelta(seconds=settings.feedback_seconds), settings.max_recorded_answers)
        self._records_all = settings.recorded_answers_per_second > 0
        self._metrics = service.metrics.group(RolloutMetrics)
        self.recorder = Recorder(service, settings.recorded_answers_per_second)
        self._turn = asyncio.Lock()
        self._task = BackgroundTask()

    def begin(self) -> None:
        """Begins to follow the registry and the answers, to report and to decide."""
        self._sync.read_also(self._read)
        self._task.start(self._run())

    async def close(self) -> None:
        """Reports for the last time."""
        if await self._task.close():
            await self.recorder.close()
            await self.report()

    async def start(self, caller: Caller, name: str, alias: str, candidate: int, guard: RolloutGuard) -> GuardedAlias:
        """Begin a guarded change of an alias. Raises what `RolloutRegistry.start` raises."""
        changed = await self._registry.start(caller.tenant, name, alias, candidate, guard, actor=caller.actor)
        await self._sync.sync_after_write()
        return changed

    async def stop(self, caller: Caller, name: str, alias: str) -> GuardedAlias:
        """Ends a guarded change; the incumbent gets every request."""
        await self.report()
        changed = await self._registry.stop(caller.tenant, name, alias, actor=caller.actor)
        await self._sync.sync_after_write()
        return changed

    async def find(self, tenant: str, name: str, alias: str) -> StoredRollout | None:
        """The newest guarded change of an alias, with what this replica has counted until now."""
        await self.report()
        return await self._registry.find(tenant, name, alias)

    async def judge(self, tenant: str, feedback: FeedbackRequest) -> Feedback:
        """Takes feedback to an answer of any replica. Raises `AnswerNotFound`, RegistryConflict for a second feedback,
        or `InvalidInput` for a label that no version can answer, and for answers that are neither right nor wrong."""
        try:
            return await self._judge(tenant, feedback)
        except AnswerUnknown as error:
            raise AnswerNotFound(str(error)) from error

    async def _judge(self, tenant: str, feedback: FeedbackRequest) -> Feedback:
        request_id, row = feedback.request_id, feedback.row
        await self.recorder.settle(tenant, request_id)
        await self.report()
        try:
            answer, rollout = await self._registry.answer(tenant, request_id, row, self._keep)
        except AnswerUnknown:
            if not self._records_all and not self.recorder.may_count(tenant):
                raise
            await asyncio.sleep(_WAIT_SECONDS)
            await self.report()
            answer, rollout = await self._registry.answer(tenant, request_id, row, self._keep)
        if answer.answer == UNJUDGED:
            raise InvalidInput(
                f"the answers of adapter {answer.name!r} are neither right nor wrong: feedback is for "
                f"{', '.join(JUDGED_TYPES)}"
            )
        judgement = Judgement(self._right_answer(answer, rollout, feedback), feedback.right)
        answer, rollout = await self._registry.judge(tenant, request_id, row, judgement, self._keep)
        was_right = bool(answer.was_right)
        result = "right" if was_right else "wrong"
        self._metrics.feedback.labels(result).inc()
        self._metrics.judge_version(VersionLabels(tenant, answer.name, str(answer.version)), result)
        return Feedback(
            request_id=request_id,
            row=row,
            adapter=answer.name,
            version=answer.version,
            right=was_right,
            counted=rollout is not None and rollout.state == "running",
            state=None if rollout is None else await self._decide(rollout),
            input_hash=answer.text_hash,
        )

    def _right_answer(
        self, answer: StoredAnswer, rollout: StoredRollout | None, feedback: FeedbackRequest
    ) -> str | None:
        if feedback.label is None:
            if rollout is not None and rollout.share is None:
                raise InvalidInput(
                    "the candidate shadows, so this feedback needs the right label: whether the incumbent's answer was "
                    "right does not tell whether the candidate's was"
                )
            return None
        entries = self._catalog.get(answer.tenant, answer.name).entries
        versions = (answer.version,) if rollout is None else (rollout.incumbent, rollout.candidate)
        tasks = [entries[one].task for one in versions if one in entries]
        if not tasks:
            raise AnswerUnknown("the version that gave this answer is deleted")
        return right_answer(tasks, feedback.label)

    async def report(self) -> None:
        """Reports what was counted, and decides the rollouts that have changed. What the registry does not take now is
        reported later."""
        rollouts = dict[str, StoredRollout]()
        async with self._turn:
            try:
                for report in self.recorder.take():
                    rollouts |= {one.id: one for one in await self._registry.report(report, self._keep)}
            except RegistryError as error:
                logger.warning("counts of guarded changes cannot be reported now: %s", error)
        for rollout in rollouts.values():
            await self._decide(rollout)

    async def _read(self, snapshot: RegistrySnapshot) -> None:
        """Reads the rollouts in progress, which begin and end with changes of adapters."""
        if snapshot.adapters or snapshot.is_whole or not self.recorder.is_ready:
            self.recorder.follow(await self._registry.running())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            try:
                await self.report()
                await self._end_late()
            except AdapterError as error:
                logger.warning("guarded changes cannot be decided now: %s", error)
            except Exception:
                # Nothing else would notice if this task ended.
                logger.exception("guarded changes cannot be decided now")

    async def _end_late(self) -> None:
        """Decides the rollouts whose time has passed."""
        now = self._now()
        for rollout in list(self.recorder.running.values()):
            if rollout.ends_at <= now:
                newest = await self._registry.find(rollout.tenant, rollout.name, rollout.alias)
                if newest is not None and newest.id == rollout.id:
                    await self._decide(newest)

    async def _decide(self, rollout: StoredRollout) -> RolloutState:
        """Decides a rollout if its counts or its time allow it; returns its state."""
        verdict = decide(rollout, self._now())
        if rollout.state != "running" or verdict.state is None:
            return rollout.state  # type: ignore[return-value]
        settled = await self._registry.settle(rollout.id, verdict.state, verdict.reason, verdict.numbers, actor=_ACTOR)
        if settled is not None:
            self._metrics.decisions.labels(settled.state).inc()
            subject = f"{settled.tenant}:{settled.name}@{settled.alias}"
            facts = settled.candidate, settled.state, settled.reason
            logger.info("the change of %s to version %d is %s: %s", subject, *facts)
        await self._sync.sync_after_write()
        return verdict.state


def rollout_on_the_wire(rollout: StoredRollout) -> Rollout:
    """A rollout as callers see it."""
    numbers: Mapping[str, Any] = rollout.numbers or decide(rollout, rollout.ends_at).numbers
    own = ("id", "alias", "incumbent", "candidate", "share", "state")
    times = ("started_at", "started_by", "ends_at", "ended_at", "reason")
    fields = {name: getattr(rollout, name) for name in (*own, *times)}
    return Rollout.model_validate({**fields, "guard": dict(rollout.guard), **numbers})
