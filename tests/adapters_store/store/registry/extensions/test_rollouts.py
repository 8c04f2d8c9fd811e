"""Guarded changes of aliases in the registry."""

import asyncio
import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import pytest
from peltier_client.protocol.rollouts import RolloutGuard
from peltier_store.registry.errors import RegistryConflict, VersionUnknown
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.extensions.rollout_records import (
    AnswerUnknown,
    Judgement,
    Report,
    Retention,
    StoredAnswer,
    StoredRollout,
)
from peltier_store.registry.extensions.rollouts import RolloutRegistry

from tests.adapters_store.store.conftest import opened
from tests.adapters_store.store.registry.conftest import publish

DAY = timedelta(days=1)
KEEP = Retention(DAY, 1000)
_NUMBERS = itertools.count(1)


async def start(rollouts: RolloutRegistry, share: float | None = 0.25, *, candidate: int = 2) -> StoredRollout:
    """`sst2@live` means version 1, and a guarded change to version 2 begins."""
    guard = RolloutGuard(share=share, shadow=share is None)
    return (await rollouts.start("acme", "sst2", "live", candidate, guard, actor="ann")).rollout


@pytest.fixture
def rollouts(registry):
    return registry.rollouts


@pytest.fixture(autouse=True)
async def versions(registry: Registry) -> None:
    """Three versions of `sst2`, of which the alias `live` means the first."""
    for data in (b"1", b"2", b"3"):
        await publish(registry, data)
    await registry.set_alias("acme", "sst2", "live", {1: 1.0}, actor="ann")


def answer(rollout: StoredRollout, request_id: str, version: int, said: str, shadow: str | None = None) -> StoredAnswer:
    """An answer to the first row of a request."""
    return StoredAnswer("acme", request_id, 0, "sst2", rollout.id, version, said, shadow, "hash", datetime.now(UTC))


async def report(rollouts, answers=(), *, counts=MappingProxyType({}), keep=KEEP):
    """The next report of a replica."""
    return await rollouts.report(Report("r1", next(_NUMBERS), counts, answers), keep)


async def meaning(registry: Registry) -> dict[int, float]:
    """The split of `sst2@live`, as replicas see it."""
    (adapter,) = (await registry.snapshot()).adapters
    (alias,) = adapter.aliases
    return dict(alias.split)


async def test_a_share_is_a_split_until_the_decision(registry: Registry, rollouts: RolloutRegistry) -> None:
    """A promoted candidate replaces the incumbent, and a rollback of the alias restores that alone."""
    rollout = await start(rollouts)
    assert await meaning(registry) == {1: 0.75, 2: 0.25}
    decided = await rollouts.settle(rollout.id, "promoted", "it is better", {"n": 3}, actor="guard")
    assert decided is not None
    assert (decided.state, decided.reason, decided.numbers) == ("promoted", "it is better", {"n": 3})
    assert await meaning(registry) == {2: 1.0}
    assert (await registry.rollback_alias("acme", "sst2", "live", actor="ann")).split == {1: 1.0}
    newest = (await registry.audit())[1]
    assert (newest.actor, newest.action, newest.subject) == ("guard", "promote_candidate", "sst2@live")
    assert newest.detail["numbers"] == {"n": 3}


async def test_a_candidate_that_is_rolled_back_leaves_no_trace(registry: Registry, rollouts: RolloutRegistry) -> None:
    """The alias means what it meant, and so does a rollback of it."""
    await registry.set_alias("acme", "sst2", "live", {3: 1.0}, actor="ann")
    rollout = await start(rollouts)
    await rollouts.settle(rollout.id, "rolled_back", "it is worse", {}, actor="guard")
    assert await meaning(registry) == {3: 1.0}
    assert (await registry.rollback_alias("acme", "sst2", "live", actor="ann")).split == {1: 1.0}


async def test_a_shadow_changes_the_alias_only_when_it_is_promoted(registry, rollouts):
    """Nor has its history an entry before. Replicas learn of it by the adapter, and its version cannot be deleted."""
    (before,) = (await registry.snapshot()).adapters
    history = await registry.alias_history("acme", "sst2", "live")
    await start(rollouts, None)
    stopped = await rollouts.stop("acme", "sst2", "live", actor="bob")
    position = (await registry.snapshot()).position
    rollout = await start(rollouts, None)
    (adapter,) = (await registry.snapshot(position)).adapters
    assert adapter.aliases == before.aliases == (stopped.alias,)
    assert await registry.alias_history("acme", "sst2", "live") == history
    assert await rollouts.running() == [rollout]
    with pytest.raises(RegistryConflict, match="in use by its alias 'live'"):
        await registry.delete_version("acme", "sst2", 2, actor="ann")
    await rollouts.settle(rollout.id, "promoted", "", {}, actor="guard")
    assert await meaning(registry) == {2: 1.0}
    await registry.delete_version("acme", "sst2", 1, actor="ann")
    assert [one.versions for one in await registry.alias_history("acme", "sst2", "live")] == [{2: 1.0}, {1: 1.0}]


async def test_only_the_first_decision_counts(rollouts: RolloutRegistry) -> None:
    """Of several replicas that decide at the same moment."""
    rollout = await start(rollouts)
    states = ["promoted", "rolled_back"] * 4
    decided = await asyncio.gather(*(rollouts.settle(rollout.id, state, "", {}, actor="guard") for state in states))
    assert sum(one is not None for one in decided) == 1
    found = await rollouts.find("acme", "sst2", "live")
    assert found in decided


@pytest.mark.parametrize("change", ["set", "rollback", "delete", "stop"])
async def test_a_change_by_hand_ends_it(registry: Registry, rollouts: RolloutRegistry, change: str) -> None:
    await start(rollouts)
    if change == "set":
        await registry.set_alias("acme", "sst2", "live", {3: 1.0}, actor="ann")
    elif change == "rollback":
        await registry.rollback_alias("acme", "sst2", "live", actor="ann")
    elif change == "delete":
        await registry.delete_alias("acme", "sst2", "live", actor="ann")
    else:
        await rollouts.stop("acme", "sst2", "live", actor="ann")
        assert await meaning(registry) == {1: 1.0}
    assert await rollouts.running() == []
    found = await rollouts.find("acme", "sst2", "live")
    assert found is not None
    assert (found.state, found.ended_at is not None) == ("stopped", True)
    assert found.reason in ("the alias was changed by ann", "it was stopped by ann")
    with pytest.raises(RegistryConflict, match="has no guarded change in progress"):
        await rollouts.stop("acme", "sst2", "live", actor="ann")


@pytest.mark.parametrize(("share", "split"), [(None, {1: 1.0}), (0.25, {1: 0.75, 2: 0.25})])
async def test_a_change_to_the_very_split_of_a_rollout_ends_it(registry, rollouts, url, share, split):
    """Whichever replica began it, and though the same versions go on to answer; another candidate may be tried then."""
    async with opened(url) as other:
        await start(other.rollouts, share)
    await registry.set_alias("acme", "sst2", "live", split, actor="bob")
    assert await rollouts.running() == []
    found = await rollouts.find("acme", "sst2", "live")
    assert found is not None
    assert (found.state, found.reason) == ("stopped", "the alias was changed by bob")
    await registry.set_alias("acme", "sst2", "live", {1: 1.0}, actor="bob")
    assert (await start(rollouts, None, candidate=3)).state == "running"


async def test_what_cannot_be_guarded(registry: Registry, rollouts: RolloutRegistry) -> None:
    with pytest.raises(VersionUnknown, match="version 9"):
        await start(rollouts, candidate=9)
    with pytest.raises(RegistryConflict, match="means version 1 already"):
        await start(rollouts, candidate=1)
    await start(rollouts)
    with pytest.raises(RegistryConflict, match="a guarded change to version 2 in progress: stop it first"):
        await start(rollouts, candidate=3)
    await registry.set_alias("acme", "sst2", "live", {1: 0.5, 2: 0.5}, actor="ann")
    with pytest.raises(RegistryConflict, match="means 2 versions; a guarded change needs one"):
        await start(rollouts, candidate=3)
    await registry.delete_alias("acme", "sst2", "live", actor="ann")
    with pytest.raises(VersionUnknown, match="has no alias 'live'"):
        await start(rollouts)


async def test_counts_of_replicas_are_summed(rollouts: RolloutRegistry) -> None:
    rollout = await start(rollouts)
    more = {rollout.id: {"candidate": {"answers": 2}, "errors": {"losses": 1}}}
    await asyncio.gather(*(report(rollouts, counts=more) for _ in range(5)))
    found = await rollouts.find("acme", "sst2", "live")
    assert found is not None
    assert found.counts == {"candidate": {"answers": 10}, "errors": {"losses": 5}}


async def test_a_repeated_report_adds_nothing(rollouts: RolloutRegistry) -> None:
    """Neither counts nor answers, whose feedback stays; the next report of the replica does, and that of another."""
    rollout = await start(rollouts)
    first, other = (Report(name, 7, {rollout.id: {"x": 20}}, [answer(rollout, name, 1, "good")]) for name in "ab")
    await rollouts.report(first, KEEP)
    await rollouts.judge("acme", "a", 0, Judgement(None, True), KEEP)
    for one in (first, other, first, replace(first, number=8, answers=[])):
        (rollout,) = await rollouts.report(one, KEEP)
    assert rollout.counts == {
        "x": 60,
        "incumbent": {"judged": 1, "right": 1},
        "waiting": {"arm": "incumbent", "right": [True]},
    }
    with pytest.raises(RegistryConflict, match="has feedback already"):
        await rollouts.judge("acme", "a", 0, Judgement(None, True), KEEP)


async def test_feedback_of_a_share_is_compared_in_order_of_arrival(rollouts: RolloutRegistry) -> None:
    """Each judged answer of one version with the newest of the other that waits."""
    rollout = await start(rollouts)
    answers = [answer(rollout, f"r{n}", version, "good") for n, version in enumerate([1, 1, 2, 2, 2])]
    await report(rollouts, answers)
    for n, right in enumerate(["good", "bad", "good", "bad", "good"]):
        judged, rollout = await rollouts.judge("acme", f"r{n}", 0, Judgement(right, None), KEEP)
        assert judged.was_right == (right == "good")
    assert rollout.counts == {
        "incumbent": {"judged": 2, "right": 1},
        "candidate": {"judged": 3, "right": 2},
        "accuracy": {"wins": 1, "losses": 1},
        "waiting": {"arm": "candidate", "right": [True]},
    }


async def test_feedback_of_a_shadow_is_compared_in_pairs(rollouts: RolloutRegistry) -> None:
    rollout = await start(rollouts, None)
    said = [("good", "good"), ("good", "bad"), ("bad", "good"), ("good", None)]
    answers = [answer(rollout, f"r{n}", 1, one, other) for n, (one, other) in enumerate(said)]
    await report(rollouts, answers)
    for n in range(4):
        _, rollout = await rollouts.judge("acme", f"r{n}", 0, Judgement("good", None), KEEP)
    assert rollout.counts == {
        "incumbent": {"judged": 4, "right": 3},
        "candidate": {"judged": 3, "right": 2},
        "accuracy": {"ties": 1, "losses": 1, "wins": 1},
    }


async def test_feedback_counts_once_and_for_its_tenant(rollouts: RolloutRegistry) -> None:
    """Other rows, other tenants and answers that are gone are unknown alike; after the end it counts no more."""
    rollout = await start(rollouts)
    await report(rollouts, [answer(rollout, "r", 1, "good"), answer(rollout, "s", 2, "good")])
    judgement = Judgement(None, True)
    for tenant, request_id, row in (("acme", "other", 0), ("acme", "r", 1), ("zenith", "r", 0)):
        with pytest.raises(AnswerUnknown, match=f"no answer is recorded for row {row} of request '{request_id}'"):
            await rollouts.judge(tenant, request_id, row, judgement, KEEP)
    await rollouts.judge("acme", "r", 0, judgement, KEEP)
    with pytest.raises(RegistryConflict, match="row 0 of request 'r' has feedback already"):
        await rollouts.judge("acme", "r", 0, judgement, KEEP)
    await report(rollouts, [answer(rollout, "r", 1, "bad")])
    assert (await rollouts.answer("acme", "r", 0, KEEP))[0].was_right is None
    await rollouts.stop("acme", "sst2", "live", actor="ann")
    _, ended = await rollouts.judge("acme", "s", 0, judgement, KEEP)
    assert "candidate" not in ended.counts


async def test_answers_are_forgotten(rollouts: RolloutRegistry) -> None:
    """By their age, and beyond the number that a tenant may have, the oldest first."""
    rollout = await start(rollouts)
    await report(rollouts, [answer(rollout, f"r{n}", 1, "good") for n in range(5)], keep=Retention(DAY, 3))
    with pytest.raises(AnswerUnknown):
        await rollouts.answer("acme", "r1", 0, KEEP)
    assert (await rollouts.answer("acme", "r2", 0, KEEP))[0].answer == "good"
    await report(rollouts, [], keep=Retention(timedelta(0), 3))
    with pytest.raises(AnswerUnknown):
        await rollouts.answer("acme", "r4", 0, KEEP)


async def test_old_answers_take_no_feedback_and_are_forgotten_without_a_report(rollouts: RolloutRegistry) -> None:
    """From the moment on that they are too old; the purge deletes them with their hashes."""
    given = [recorded(1, 1), replace(recorded(2, 1), answered_at=datetime.now(UTC) - 2 * DAY)]
    await report(rollouts, given, keep=Retention(3 * DAY, 1000))
    with pytest.raises(AnswerUnknown):
        await rollouts.answer("acme", "r2", 0, KEEP)
    with pytest.raises(AnswerUnknown):
        await rollouts.judge("acme", "r2", 0, Judgement("good", None), KEEP)
    await rollouts.forget(DAY)
    assert (await rollouts.answer("acme", "r1", 0, KEEP))[0] == given[0]
    with pytest.raises(AnswerUnknown):
        await rollouts.answer("acme", "r2", 0, Retention(3 * DAY, 1000))


async def test_an_answer_outside_of_a_rollout_takes_feedback_once(rollouts: RolloutRegistry) -> None:
    rollout = await start(rollouts)
    given = StoredAnswer("acme", "r", 0, "sst2", None, 1, "good", None, "hash", datetime.now(UTC))
    assert await report(rollouts, [given]) == []
    assert await rollouts.answer("acme", "r", 0, KEEP) == (given, None)
    judged, of_rollout = await rollouts.judge("acme", "r", 0, Judgement("good", None), KEEP)
    assert (judged.was_right, of_rollout) == (True, None)
    with pytest.raises(RegistryConflict, match="has feedback already"):
        await rollouts.judge("acme", "r", 0, Judgement(None, False), KEEP)
    assert await rollouts.find("acme", "sst2", "live") == rollout


def recorded(number: int, version: int) -> StoredAnswer:
    """An answer outside of a rollout."""
    at = datetime.now(UTC)
    return StoredAnswer("acme", f"r{number}", 0, "sst2", None, version, "good", None, "hash", at)


async def test_answers_end_with_their_version(registry: Registry, rollouts: RolloutRegistry) -> None:
    """Deleting a version deletes its rows, and deleting an adapter those of all versions."""
    await report(rollouts, [recorded(version, version) for version in (1, 2, 3)])
    await registry.delete_version("acme", "sst2", 2, actor="ann")
    with pytest.raises(AnswerUnknown):
        await rollouts.answer("acme", "r2", 0, KEEP)
    assert (await rollouts.answer("acme", "r3", 0, KEEP))[0].version == 3
    await registry.delete_adapter("acme", "sst2", actor="ann")
    with pytest.raises(AnswerUnknown):
        await rollouts.answer("acme", "r3", 0, KEEP)


async def test_what_is_of_a_lost_rollout_is_left_out_of_a_report(rollouts: RolloutRegistry) -> None:
    """A restored registry may lack a rollout that a replica has counted; the rest of its report counts."""
    rollout = await start(rollouts)
    lost = replace(rollout, id="rol_lost")
    answers = [answer(lost, "a", 1, "good"), answer(rollout, "b", 1, "good")]
    (counted,) = await report(rollouts, answers, counts={"rol_lost": {"x": 1}, rollout.id: {"x": 2}})
    assert (counted.id, counted.counts) == (rollout.id, {"x": 2})
    with pytest.raises(AnswerUnknown):
        await rollouts.answer("acme", "a", 0, KEEP)
    assert (await rollouts.answer("acme", "b", 0, KEEP))[0].answer == "good"
