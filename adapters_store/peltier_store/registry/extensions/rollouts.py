"""Guarded changes of aliases: the candidate, what all replicas have counted, the answers that feedback refers to, and
the decision, which one writing transaction makes.

With a share, a guarded change begins with a change of its alias. It ends with the next change of the alias, whoever
makes that. Replicas add what they count to the counts of the rollout, and any of
them may settle it. Writing transactions are serialised, so no count is lost, and only the first of several decisions
finds the rollout running. A replica whose report may or may not be stored, because no answer has come, sends it again
under the same number, so no count is added twice.
"""

import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from peltier_client.protocol.rollouts import RolloutGuard
from sqlalchemy import Connection, Select, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from peltier_store.registry import aliases
from peltier_store.registry.errors import InvalidRecord, RegistryConflict
from peltier_store.registry.extensions.rollout_records import (
    AnswerUnknown,
    GuardedAlias,
    Judgement,
    Report,
    Retention,
    StoredAnswer,
    StoredRollout,
)
from peltier_store.registry.extensions.rollout_tables import AnswerRow, ReporterRow, RolloutRow
from peltier_store.registry.lookup import require_adapter, require_live
from peltier_store.registry.operations import Operations, reads, writes
from peltier_store.registry.records import VersionRecord
from peltier_store.registry.tables import AdapterRow, VersionRow
from peltier_store.registry.transactions import WriteTransaction, read_clock

# Judged answers of one arm that wait for one of the other; the oldest is dropped.
MAX_WAITING = 64
# Longer than a replica that does not end goes on trying to send a report.
_REPORTING = timedelta(days=7)
_ACTIONS = {"promoted": "promote_candidate", "rolled_back": "roll_back_candidate", "stopped": "stop_rollout"}
_OWN_COLUMNS = tuple(
    column for column in RolloutRow.__table__.columns if column.name not in ("adapter_id", "change_id")
)
_KEY = ("tenant", "request_id", "row")


def _select_rollouts() -> Select[Any]:
    own = select(AdapterRow.tenant, AdapterRow.name, *_OWN_COLUMNS)
    return own.join(AdapterRow, AdapterRow.id == RolloutRow.adapter_id)


def _read(connection: Connection, selected: Select[Any]) -> list[StoredRollout]:
    return [StoredRollout(**row._mapping) for row in connection.execute(selected)]


def point_alias(writing: WriteTransaction, version: VersionRecord, alias: str, guard: RolloutGuard | None) -> None:
    """Makes the alias mean a published version; with a guard, by a guarded change from the version that it means. An
    alias that means or tries the version already stays as it is."""
    tenant, name, number = version.tenant, version.name, version.number
    current = aliases.find_current(writing.connection, require_adapter(writing.connection, tenant, name), alias)
    if guard is None or current is None or current.split is None:
        aliases.set_alias(writing, tenant, name, alias, {number: 1.0})
        return
    newest = _newest(writing.connection, tenant, name, alias)
    is_tried = newest is not None and newest.state == "running" and newest.candidate == number
    is_meant = list(aliases.split_of(current.split)) == [number]
    if not (is_tried or is_meant):
        _start(writing, tenant, name, alias, number, guard)


def _start(  # noqa: PLR0913 - what a guarded change is
    writing: WriteTransaction, tenant: str, name: str, alias: str, candidate: int, guard: RolloutGuard
) -> GuardedAlias:
    connection = writing.connection
    adapter_id = require_adapter(connection, tenant, name)
    require_live(connection, adapter_id, name, candidate)
    newest = _newest(connection, tenant, name, alias)
    if newest is not None and newest.state == "running":
        raise RegistryConflict(
            f"alias {alias!r} of adapter {name!r} has a guarded change to version {newest.candidate} in progress: stop "
            "it first"
        )
    current = aliases.require_current(connection, adapter_id, name, alias)
    incumbents = list(aliases.split_of(current.split))
    if len(incumbents) != 1:
        raise RegistryConflict(
            f"alias {alias!r} of adapter {name!r} means {len(incumbents)} versions; a guarded change needs one"
        )
    if incumbents == [candidate]:
        raise RegistryConflict(f"alias {alias!r} of adapter {name!r} means version {candidate} already")
    _require_one_type(connection, adapter_id, incumbents[0], candidate)
    bounds = guard.model_dump(mode="json", exclude={"share", "shadow"})
    rollout = StoredRollout(
        f"rol_{secrets.token_hex(12)}", tenant, name, alias, incumbents[0], candidate, guard.share, bounds, {},
        "running", writing.at, writing.actor, writing.at + timedelta(hours=guard.max_hours),
    )  # fmt: skip
    changed = aliases.alias_of(current)
    if guard.share is not None:
        split = {rollout.incumbent: 1 - guard.share, candidate: guard.share}
        changed = aliases.change(writing, adapter_id, alias, split, current.id)
    writing.stamp_adapter(adapter_id)
    values = {key: value for key, value in asdict(rollout).items() if key not in ("tenant", "name")}
    connection.execute(insert(RolloutRow).values(adapter_id=adapter_id, change_id=changed.id, **values))
    detail = {"rollout": rollout.id, "incumbent": rollout.incumbent, "candidate": candidate, "share": guard.share}
    writing.audit(tenant, "start_rollout", f"{name}@{alias}", **detail, guard=bounds)
    return GuardedAlias(changed, rollout)


def _require_one_type(connection: Connection, adapter_id: int, *numbers: int) -> None:
    """Raises InvalidRecord for versions of different types of tasks."""
    own = (VersionRow.adapter_id == adapter_id, VersionRow.number.in_(numbers))
    manifests = connection.execute(select(VersionRow.manifest).where(*own)).scalars()
    kinds = {json.loads(manifest).get("task", {}).get("type") for manifest in manifests}
    if len(kinds) > 1:
        raise InvalidRecord(f"a guarded change needs two versions of one type; these are {' and '.join(sorted(kinds))}")


def _settle(
    writing: WriteTransaction, rollout: StoredRollout, state: str, reason: str, numbers: Mapping[str, Any]
) -> GuardedAlias:
    connection = writing.connection
    values: dict[str, Any] = {"state": state, "reason": reason, "numbers": dict(numbers), "ended_at": writing.at}
    connection.execute(update(RolloutRow).where(RolloutRow.id == rollout.id).values(**values))
    adapter_id = require_adapter(connection, rollout.tenant, rollout.name)
    current = aliases.require_current(connection, adapter_id, rollout.name, rollout.alias)
    # With a share, the alias has meant the incumbent alone until the change before.
    before = current if rollout.share is None else aliases.find_change(connection, current.previous_id)
    changed = aliases.alias_of(before)
    if state == "promoted":
        changed = aliases.change(writing, adapter_id, rollout.alias, {rollout.candidate: 1.0}, before.id)
    elif rollout.share is not None:
        changed = aliases.change(writing, adapter_id, rollout.alias, changed.split, before.previous_id)
    writing.stamp_adapter(adapter_id)
    detail = {"rollout": rollout.id, "incumbent": rollout.incumbent, "candidate": rollout.candidate, "reason": reason}
    subject = f"{rollout.name}@{rollout.alias}"
    writing.audit(rollout.tenant, _ACTIONS[state], subject, **detail, numbers=dict(numbers))
    return GuardedAlias(changed, replace(rollout, **values))


def _judge(  # noqa: PLR0913 - what feedback is
    writing: WriteTransaction, tenant: str, request_id: str, row: int, judgement: Judgement, keep: Retention
) -> tuple[StoredAnswer, StoredRollout | None]:
    """Records the feedback for a row, and counts it while its rollout is in progress. Raises AnswerUnknown, also for an
    answer that is too old, or RegistryConflict if the row has feedback."""
    answer = _answer(writing.connection, tenant, request_id, row, writing.at - keep.duration)
    rollout = _rollout_for(writing.connection, answer)
    if answer.was_right is not None:
        raise RegistryConflict(f"row {answer.row} of request {answer.request_id!r} has feedback already")
    wanted, is_right = judgement
    if wanted is None and rollout is not None and rollout.share is None:
        raise InvalidRecord("the candidate shadows, so the feedback must have the right answer")
    was_right = is_right if wanted is None else answer.answer == wanted
    assert was_right is not None, "a judgement has a right answer or says whether the given one is right"
    own = (
        AnswerRow.tenant == answer.tenant, AnswerRow.request_id == answer.request_id, AnswerRow.row == answer.row,
    )  # fmt: skip
    writing.connection.execute(update(AnswerRow).where(*own).values(was_right=was_right))
    if rollout is not None and rollout.state == "running":
        if rollout.share is not None:
            more, waiting = matched(rollout, answer.version == rollout.candidate, was_right)
        else:
            more, waiting = _paired(answer, was_right, wanted), {}
        rollout = _count(writing, rollout, more, waiting)
    return replace(answer, was_right=was_right), rollout


def _paired(answer: StoredAnswer, was_right: bool, wanted: str | None) -> dict[str, Any]:
    """The counts of a row that both versions have answered."""
    counts: dict[str, Any] = {"incumbent": {"judged": 1, "right": int(was_right)}}
    if answer.shadow is not None:
        other = answer.shadow == wanted
        counts |= {"candidate": {"judged": 1, "right": int(other)}, "accuracy": compared(other, was_right)}
    return counts


def matched(rollout: StoredRollout, is_candidate: bool, was_right: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The counts of a row that one version has answered: it is compared with the newest unmatched row of the other.
    Returns the rows that wait, too."""
    arm = "candidate" if is_candidate else "incumbent"
    counts: dict[str, Any] = {arm: {"judged": 1, "right": int(was_right)}}
    waiting = rollout.counts.get("waiting") or {"arm": arm, "right": []}
    if waiting["arm"] == arm or not waiting["right"]:
        return counts, {"arm": arm, "right": [*waiting["right"], was_right][-MAX_WAITING:]}
    *rest, other = waiting["right"]
    counts["accuracy"] = compared(was_right, other) if is_candidate else compared(other, was_right)
    return counts, {"arm": waiting["arm"], "right": rest}


def compared(candidate: float, incumbent: float) -> dict[str, int]:
    """One comparison of two values, of which the higher one is better, as counts."""
    return {"wins" if candidate > incumbent else "losses" if candidate < incumbent else "ties": 1}


def added(counts: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The sums of two nested mappings of counts."""
    sums = dict(counts)
    for name, value in more.items():
        is_nested = isinstance(value, Mapping)
        sums[name] = added(counts.get(name, {}), value) if is_nested else counts.get(name, 0) + value
    return sums


def _count(
    writing: WriteTransaction, rollout: StoredRollout, more: Mapping[str, Any], waiting: Mapping[str, Any] | None = None
) -> StoredRollout:
    if rollout.state != "running":
        return rollout
    counts = added(rollout.counts, more) | ({"waiting": dict(waiting)} if waiting else {})
    writing.connection.execute(update(RolloutRow).where(RolloutRow.id == rollout.id).values(counts=counts))
    return replace(rollout, counts=counts)


def _take_number(writing: WriteTransaction, report: Report) -> bool:
    """Whether the report is new: its replica has not stored one with this number."""
    own = ReporterRow.replica == report.replica
    last = writing.connection.execute(select(ReporterRow.number).where(own)).scalar_one_or_none()
    if last is not None and last >= report.number:
        return False
    values = {"number": report.number, "reported_at": writing.at}
    if last is None:
        writing.connection.execute(insert(ReporterRow).values(replica=report.replica, **values))
    else:
        writing.connection.execute(update(ReporterRow).where(own).values(**values))
    return True


def _record(writing: WriteTransaction, answers: Sequence[StoredAnswer]) -> None:
    if not answers:
        return
    # Both take the same clauses; the general statement has none for a row that exists.
    new = (sqlite if writing.connection.dialect.name == "sqlite" else postgresql).insert(AnswerRow)
    rest = {name: new.excluded[name] for name in asdict(answers[0]) if name not in _KEY}
    newest = {(one.tenant, one.request_id, one.row): asdict(one) for one in answers}
    replacing = new.on_conflict_do_update(index_elements=_KEY, set_=rest)
    writing.connection.execute(replacing, list(newest.values()))


def _report(writing: WriteTransaction, report: Report, keep: Retention) -> list[StoredRollout]:
    """Adds the counts and answers of a report, unless it is a repeated one; returns the rollouts that it counts.

    A newer answer replaces that of an earlier request with the same id. What is of a rollout that the registry lacks,
    because it was restored, is left out.
    """
    known = _known(writing.connection, {*report.counts, *(one.rollout_id or "" for one in report.answers)})
    counted = [known[one] for one in report.counts if one in known]
    if not _take_number(writing, report):
        return counted
    _record(writing, [one for one in report.answers if one.rollout_id is None or one.rollout_id in known])
    _forget(writing, {answer.tenant for answer in report.answers}, keep)
    return [_count(writing, one, report.counts[one.id]) for one in counted]


def _forget_ended(writing: WriteTransaction, max_age: timedelta) -> None:
    """Deletes the older answers of all tenants. `report` does so too, but only while there are new ones. Forgets
    replicas that have ended."""
    _forget_older(writing, max_age)
    writing.connection.execute(delete(ReporterRow).where(ReporterRow.reported_at < writing.at - _REPORTING))


def _forget_older(writing: WriteTransaction, max_age: timedelta) -> None:
    writing.connection.execute(delete(AnswerRow).where(AnswerRow.answered_at < writing.at - max_age))


def _forget(writing: WriteTransaction, tenants: set[str], keep: Retention) -> None:
    _forget_older(writing, keep.duration)
    for tenant in tenants:
        own = select(AnswerRow.id).where(AnswerRow.tenant == tenant).order_by(AnswerRow.id.desc())
        limit = writing.connection.execute(own.offset(keep.max_answers).limit(1)).scalar_one_or_none()
        if limit is not None:
            writing.connection.execute(delete(AnswerRow).where(AnswerRow.tenant == tenant, AnswerRow.id <= limit))


def _answer(connection: Connection, tenant: str, request_id: str, row: int, since: datetime) -> StoredAnswer:
    """The recorded answer to a row, unless it was given before `since`: the purge deletes it later."""
    own = (AnswerRow.tenant == tenant, AnswerRow.request_id == request_id, AnswerRow.row == row)
    columns = (column for column in AnswerRow.__table__.columns if column.name != "id")
    kept = select(*columns).where(*own, AnswerRow.answered_at >= since)
    found = connection.execute(kept).one_or_none()
    if found is None:
        raise AnswerUnknown(
            f"no answer is recorded for row {row} of request {request_id!r}: the id is unknown, the answer was not "
            "recorded, or it is forgotten"
        )
    return StoredAnswer(**found._mapping)


def _find_answer(
    connection: Connection, tenant: str, request_id: str, row: int, keep: Retention
) -> tuple[StoredAnswer, StoredRollout | None]:
    """The recorded answer to a row, and its rollout. Raises AnswerUnknown, also for one that is too old."""
    found = _answer(connection, tenant, request_id, row, read_clock(connection) - keep.duration)
    return found, _rollout_for(connection, found)


def _rollout_for(connection: Connection, answer: StoredAnswer) -> StoredRollout | None:
    return None if answer.rollout_id is None else _by_id(connection, answer.rollout_id)


def _known(connection: Connection, ids: Collection[str]) -> dict[str, StoredRollout]:
    return {one.id: one for one in _read(connection, _select_rollouts().where(RolloutRow.id.in_(ids)))}


def _by_id(connection: Connection, rollout_id: str) -> StoredRollout:
    return _known(connection, [rollout_id])[rollout_id]


def _newest(connection: Connection, tenant: str, name: str, alias: str) -> StoredRollout | None:
    """The newest rollout of an alias; None if it never had one. Raises AdapterUnknown."""
    adapter_id = require_adapter(connection, tenant, name)
    own = _select_rollouts().where(RolloutRow.adapter_id == adapter_id, RolloutRow.alias == alias)
    # The clock may have been put back, so that times tell no order.
    order = (RolloutRow.change_id.desc(), (RolloutRow.state == "running").desc(), RolloutRow.started_at.desc())
    return next(iter(_read(connection, own.order_by(*order).limit(1))), None)


def _running(connection: Connection) -> list[StoredRollout]:
    """The rollouts of all tenants that are in progress."""
    return _read(connection, _select_rollouts().where(RolloutRow.state == "running"))


def _stop(writing: WriteTransaction, tenant: str, name: str, alias: str) -> GuardedAlias:
    rollout = _newest(writing.connection, tenant, name, alias)
    if rollout is None or rollout.state != "running":
        raise RegistryConflict(f"alias {alias!r} of adapter {name!r} has no guarded change in progress")
    return _settle(writing, rollout, "stopped", f"it was stopped by {writing.actor}", {})


class RolloutRegistry(Operations):
    """Rollouts of a registry's tenants, and the answers that wait for feedback."""

    find = reads(_newest)
    running = reads(_running)
    answer = reads(_find_answer)
    report = writes(_report)
    judge = writes(_judge)
    forget = writes(_forget_ended)

    async def start(  # noqa: PLR0913 - what a guarded change is
        self, tenant: str, name: str, alias: str, candidate: int, guard: RolloutGuard, *, actor: str
    ) -> GuardedAlias:
        """Begins a guarded change of an alias; returns the alias with it. Raises AdapterUnknown, VersionUnknown,
        RegistryConflict if the alias means several versions or the candidate alone, or if a guarded change of it is in
        progress, or InvalidRecord for versions of two types."""
        return await self._write(actor, _start, tenant, name, alias, candidate, guard)

    async def stop(self, tenant: str, name: str, alias: str, *, actor: str) -> GuardedAlias:
        """Ends the rollout in progress; the incumbent gets every request. Returns the alias with the rollout. Raises
        AdapterUnknown, or RegistryConflict if none is in progress."""
        return await self._write(actor, _stop, tenant, name, alias)

    async def settle(
        self, rollout_id: str, state: str, reason: str, numbers: Mapping[str, Any], *, actor: str
    ) -> StoredRollout | None:
        """Decides a rollout: `promoted` or `rolled_back`, with the reason and the numbers behind it. Returns it as
        decided; None if it has ended before."""

        def work(writing: WriteTransaction) -> StoredRollout | None:
            rollout = _by_id(writing.connection, rollout_id)
            return _settle(writing, rollout, state, reason, numbers).rollout if rollout.state == "running" else None

        return await self._transactions.write(actor, work)
