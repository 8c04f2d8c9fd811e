"""Trained adapters become versions of their tasks."""

import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from peltier_adapters.artifact.source import digest_of
from peltier_client.errors import QueueFull
from peltier_server.catalog.publisher import Publisher
from peltier_server.extensions.trainings.publication import TrainingMetrics, TrainingPublisher
from peltier_server.extensions.trainings.trainings import Trainings
from peltier_store.blobs.blobs import BlobStoreFull
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.extensions import queue

from tests.server.conftest import Running, Serve, read_again, until
from tests.support.played_worker import PlayedWorker, play_worker

BODY = {"task": "demo", "examples": [{"text": "a gem", "label": "good"}, {"text": "a bore", "label": "bad"}]}


@pytest.fixture
async def own_worker(running: Running) -> AsyncIterator[PlayedWorker]:
    """A worker of a server of the test."""
    async with play_worker(running.service.settings.store) as played:
        yield played


async def train(running: Running, worker: PlayedWorker, data: bytes, **body: object) -> str:
    """The id of a training whose worker has left `data`."""
    answer = await running.client.post("/v1/trainings", json={**BODY, **body})
    assert answer.status_code == 202, answer.text
    await worker.leave(await worker.begin(), data)
    return answer.json()["id"]


async def ended(running: Running, training_id: str) -> dict[str, Any]:
    """The training once it has ended."""
    async with running.client.stream("GET", f"/v1/trainings/{training_id}/events") as answer:
        await answer.aread()
    found: dict[str, Any] = (await running.client.get(f"/v1/trainings/{training_id}")).json()
    assert found["status"] in ("succeeded", "failed")
    return found


def count(running: Running, result: str) -> float:
    """The publications with this result."""
    return running.service.metrics.group(TrainingMetrics).publications.labels(result)._value.get()


async def test_an_adapter_is_published_in_its_owners_name(caller, worker, artifact):
    """As the next version of the task, which is in the audit log as any upload; the metrics count it."""
    before = count(caller, "published")
    training_id = await train(caller, worker, artifact, task="sst2", publish={"alias": "best"})
    assert (await ended(caller, training_id))["adapter"] == "sst2@1"
    (version,) = (await caller.client.get("/v1/adapters/sst2/versions")).json()["versions"]
    assert (version["created_by"], version["digest"]) == (caller.actor, digest_of(artifact))
    assert (await caller.predict("sst2@best", "good")).status_code == 200
    assert count(caller, "published") == before + 1


async def test_two_servers_hold_trainings_by_two_names(caller: Running) -> None:
    """Also with one host name and one process id, as in containers; else either would go on with the other's lease."""
    service = caller.service
    other = TrainingPublisher(service.store, service.publisher, service.metrics.group(TrainingMetrics))
    assert other._name != caller.app.state.started[Trainings].publisher._name


async def test_a_guarded_adapter_is_a_candidate_first(caller, worker, bert, make_artifact):
    """The alias means the version before, and the rollout is in its owner's name; the first version of an alias has
    nothing to be compared with, so the alias means it at once."""
    publish = {"alias": "best", "guard": {"shadow": True, "margin": 0.05}}
    for number in (1, 2):
        data = make_artifact(bert, "bitfit", seed=number)
        training_id = await train(caller, worker, data, task="sst2", publish=publish)
        assert (await ended(caller, training_id))["adapter"] == f"sst2@{number}"
        alias = (await caller.client.get("/v1/adapters/sst2/aliases/best")).json()
        assert alias["versions"] == {"1": 1.0}
    rollout = alias["rollout"]
    assert (rollout["candidate"], rollout["state"], rollout["started_by"]) == (2, "running", caller.actor)
    assert (rollout["share"], rollout["guard"]["margin"]) == (None, 0.05)


async def test_a_guarded_change_begins_once(caller, worker, bert, make_artifact):
    """A replica that repeats the publication of another one finds the change in progress."""
    publish = {"alias": "best", "guard": {"shadow": True}}
    for number in (1, 2, 2):
        data = make_artifact(bert, "bitfit", seed=number)
        found = await ended(caller, await train(caller, worker, data, task="sst2", publish=publish))
        assert found["adapter"] == f"sst2@{number}"
    query = {"action": "start_rollout", "tenant": caller.tenant}
    records = (await caller.client.get("/v1/audit", params=query)).json()["records"]
    assert len(records) == 1


async def test_a_guarded_change_that_nothing_would_judge_is_refused(serve: Serve) -> None:
    """Where the server leaves rollouts out; an alias alone is as ever."""
    publish = {"alias": "best", "guard": {"shadow": True}}
    async with serve(without="rollouts") as running:
        answer = await running.client.post("/v1/trainings", json={**BODY, "publish": publish})
        assert answer.status_code == 422
        assert answer.json()["error"]["message"] == (
            "publish.guard begins a guarded change, and this server is without rollouts"
        )
        accepted = await running.client.post("/v1/trainings", json={**BODY, "publish": {"alias": "best"}})
        assert accepted.status_code == 202


async def test_a_refused_adapter_fails_its_training_with_the_reason(caller: Running, worker: PlayedWorker) -> None:
    before = count(caller, "refused")
    training_id = await train(caller, worker, b"no artifact at all")
    found = await ended(caller, training_id)
    assert found["status"] == "failed"
    assert found["reason"].startswith("its adapter cannot be published: the artifact is refused: ")
    assert (await caller.client.get("/v1/adapters/demo")).status_code == 404
    assert count(caller, "refused") == before + 1


async def test_a_quota_that_is_reached_fails_the_training(caller, worker, artifact):
    await caller.limit(max_adapters=0)
    found = await ended(caller, await train(caller, worker, artifact))
    assert f"tenant {caller.tenant!r} has 0 adapters and may have 0" in found["reason"]


async def test_missing_bytes_fail_the_training(caller, worker, artifact, monkeypatch):
    """Without the address of the store."""
    settle = worker.registry.trainings.settle

    async def lose(*given: Any, **more: Any) -> None:
        await worker.blobs.delete(digest_of(artifact))
        await settle(*given, **more)

    monkeypatch.setattr(worker.registry.trainings, "settle", lose)
    found = await ended(caller, await train(caller, worker, artifact))
    assert found["reason"] == "its adapter cannot be published: its stored bytes are missing or damaged"


@pytest.mark.parametrize("failure", [BlobStoreFull("the disk is full"), QueueFull("262144 tokens wait")])
async def test_a_failing_store_and_a_full_queue_are_tried_again(caller, worker, artifact, monkeypatch, caplog, failure):
    """When the lease has ended, by whoever claims the training then."""
    lease, publish, calls = queue.LEASE, Publisher.publish, list[object]()

    async def fail_once(self: Publisher, *given: Any) -> Any:
        calls.append(given)
        if len(calls) == 1:
            raise failure
        return await publish(self, *given)

    monkeypatch.setattr(Publisher, "publish", fail_once)
    monkeypatch.setattr(caller.app.state.started[Trainings].publisher._turns, "_idle_seconds", 0.02)
    monkeypatch.setattr(queue, "LEASE", lease * 0)
    found = await ended(caller, await train(caller, worker, artifact))
    assert (found["status"], len(calls)) == ("succeeded", 2)
    assert [one.levelno for one in caplog.records if "cannot be published now" in one.message] == [logging.WARNING]


async def test_a_failure_that_nothing_explains_ends_the_training(caller, worker, artifact, monkeypatch, caplog):
    """After three attempts; the log has the traceback, the owner a sentence."""

    async def fail(*_: Any) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(Publisher, "publish", fail)
    monkeypatch.setattr(caller.app.state.started[Trainings].publisher._turns, "_idle_seconds", 0.02)
    monkeypatch.setattr(queue, "LEASE", queue.LEASE * 0)
    found = await ended(caller, await train(caller, worker, artifact))
    assert found["reason"] == (
        "its adapter cannot be published: the server failed to publish it; its log has the reason"
    )
    assert sum(one.exc_info is not None for one in caplog.records) == 3


async def test_a_killed_replica_leaves_nothing_to_be_published_twice(running, own_worker, bert, make_artifact):
    """After whichever of its transactions it ends, also before it has the answer: the next replica ends the training,
    and what the owner has said of the alias since then stays."""
    publisher, num_moved = running.app.state.started[Trainings].publisher, 0
    await publisher.close()
    await running.publish("demo", make_artifact(bert, "bitfit"))
    for number, is_answered in enumerate([False, True] * 4):
        await running.client.put("/v1/adapters/demo/aliases/best", json={"version": 1})
        data = make_artifact(bert, "bitfit", seed=number + 1)
        training_id = await train(running, own_worker, data, publish={"alias": "best"})
        with killed_after(running, number // 2, is_answered=is_answered):
            await publisher._look()
        await read_again(running)
        alias = (await running.client.get("/v1/adapters/demo/aliases/best")).json()
        if is_moved := alias["versions"] != {"1": 1.0}:
            num_moved += 1
            await running.client.put("/v1/adapters/demo/aliases/best", json={"version": 1})
        await publisher._look()
        assert (await ended(running, training_id))["adapter"] == f"demo@{number + 2}"
        alias = (await running.client.get("/v1/adapters/demo/aliases/best")).json()
        assert alias["versions"] == {"1" if is_moved else f"{number + 2}": 1.0}
    assert 0 < num_moved < 8


@contextmanager
def killed_after(running: Running, count: int, *, is_answered: bool) -> Iterator[None]:
    """The store fails the server after so many transactions that change something, the last with or without an answer.
    A lease ends at once."""
    transactions, left = running.service.store.registry._transactions, count
    write = transactions.write

    async def fail(*given: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        found = None if left < 0 else await write(*given, **more)
        if left < 0 or (left == 0 and not is_answered):
            raise RegistryError("the replica is killed")
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue, "LEASE", queue.LEASE * 0)
        patch.setattr(transactions, "write", fail)
        with suppress(RegistryError):
            yield


async def test_no_time_is_lost_between_the_worker_and_the_publication(caller, worker, artifact, monkeypatch):
    """A change of the registry wakes the publisher, which would otherwise look after half a minute."""
    turns, looked = caller.app.state.started[Trainings].publisher._turns, threading.Event()
    look = turns._take_turn

    async def noted() -> bool:
        found = await look()
        looked.set()
        return found

    monkeypatch.setattr(turns, "_take_turn", noted)
    await train(caller, worker, artifact)
    await until(looked.is_set)


async def test_gauges_count_the_trainings_of_the_registry(running: Running, own_worker: PlayedWorker) -> None:
    for _ in range(2):
        await running.client.post("/v1/trainings", json=BODY)
    await own_worker.begin()
    gauge = running.service.metrics.group(TrainingMetrics).trainings
    await until(lambda: (gauge.labels("queued")._value.get(), gauge.labels("running")._value.get()) == (1, 1))
