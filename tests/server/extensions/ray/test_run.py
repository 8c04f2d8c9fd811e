"""Replicas on Ray Serve, which share a registry in PostgreSQL and the bytes of artifacts."""

import itertools
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from peltier_client import Client

from tests.support.postgres_server import run_postgres
from tests.support.ray_cluster import RayCluster
from tests.support.server_process import Server

# The quick tests of this folder test the policy and the router; tests/test_affinity.py the same sessions with HAProxy.
# Ray ends processes of its own that a busy machine delays.
pytestmark = [pytest.mark.alone, pytest.mark.postgres]

TASKS = [f"task-{number}" for number in range(8)]
TEXTS = ["a good film", "bad", "the plot was not very good , and the actor is dull"]
NUM_CALLERS = 8
_MAX_WAITING = 64  # callers of one task
SECRET = {"PELTIER_SECRET": "replicas-share-it-" + "x" * 32}
LOOPBACK = {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
_numbers = itertools.count()


@dataclass(frozen=True)
class Fleet:
    """The cluster, the flags of its store, and what another artifact is."""

    cluster: RayCluster
    flags: list[str]
    artifact: Callable[[int], bytes]
    folder: Path


@pytest.fixture(scope="module")
def fleet(bert, bert_directory, make_artifact, tmp_path_factory):
    """Two replicas, and up to three, without an adapter in memory: another server has published the tasks."""
    folder = tmp_path_factory.mktemp("ray")
    (folder / "tasks").mkdir()
    for seed, task in enumerate(TASKS):
        data = make_artifact(bert, "lora", name=task, seed=seed)
        (folder / "tasks" / f"{task}.safetensors").write_bytes(data)
    with ExitStack() as started:
        postgres = started.enter_context(run_postgres())
        registry = postgres.url(postgres.create_database())
        flags = ["--backbone", str(bert_directory), "--store", str(folder / "store"), "--registry", registry]
        publisher = Server(folder / "publisher.log", *flags, "--publish", str(folder / "tasks"), **SECRET)
        publisher.wait_until_ready().end()
        bounds = ["--min-replicas", "2", "--max-replicas", "3", "--target-queued-tokens", "2000"]
        delays = ["--upscale-seconds", "1", "--downscale-seconds", "8", "--access-log"]
        cluster = RayCluster(folder / "ray.log", *flags, *bounds, *delays, **SECRET)
        started.callback(cluster.end)
        cluster.wait_until_ready()
        yield Fleet(cluster, flags, lambda seed: make_artifact(bert, "lora", name="changed", seed=seed), folder)


def ask(cluster: RayCluster, task: str, inputs: Any = TEXTS, **headers: str) -> httpx2.Response:
    """A prediction in the session of the task."""
    sent = {"x-session-id": f"default/{task}"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return cluster.client.post(f"/v1/tasks/{task}/predict", json={"inputs": inputs}, headers=sent)


def home(cluster: RayCluster, task: str) -> int:
    """The process of the replica that answers a task."""
    name = f"call-{next(_numbers)}-of-the-test"
    assert ask(cluster, task, x_request_id=name).status_code == 200
    return cluster.answered_by(name)


def wait_for(condition: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.2)


def test_each_adapter_is_on_one_replica(fleet: Fleet) -> None:
    """All calls of a session go to one replica, whichever route they take, so no adapter is loaded twice."""
    with Client(fleet.cluster.url) as client:
        for _ in range(3):
            for task in TASKS:
                client.predict(task, TEXTS)
                client.predict_many([(task, TEXTS[0])])
    resident = fleet.cluster.metric("peltier_adapters", tier="device")
    assert len(resident) == 2
    assert sum(resident.values()) == len(TASKS)
    assert all(resident.values())


def test_an_answer_has_one_id(fleet: Fleet) -> None:
    for sent in ({}, {"x_request_id": "mine"}):
        (found,) = ask(fleet.cluster, TASKS[0], **sent).headers.get_list("x-request-id")
        assert found == sent.get("x_request_id", found)


def test_answers_are_those_of_a_single_server(fleet: Fleet, tmp_path: Path) -> None:
    """Equal to the last bit, with and without a session."""
    server = Server(tmp_path / "log", *fleet.flags, **SECRET).wait_until_ready()
    try:
        for task in TASKS:
            expected = server.client.post(f"/v1/tasks/{task}/predict", json={"inputs": TEXTS}).json()["predictions"]
            assert ask(fleet.cluster, task).json()["predictions"] == expected
            alone = fleet.cluster.client.post(f"/v1/tasks/{task}/predict", json={"inputs": TEXTS})
            assert alone.json()["predictions"] == expected
        missing = fleet.cluster.client.post("/v1/tasks/missing/predict", json={"inputs": "a"})
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "adapter_not_found")
    finally:
        server.end()


def test_nothing_listens_beyond_loopback(fleet: Fleet) -> None:
    """Neither the proxy, nor Ray's own processes, nor the replicas."""
    heard = Counter(
        connection.laddr.ip
        for process in fleet.cluster.processes
        for connection in process.net_connections("tcp")
        if connection.status == "LISTEN"
    )
    assert heard.total() > len(fleet.cluster.replicas)
    assert {*heard} <= LOOPBACK


def test_a_hot_task_spills_and_a_cold_one_stays(fleet: Fleet) -> None:
    """While the replica of a task computes nothing, others answer once it has its share of requests, and nothing fails.

    Requests that arrive at the same moment do not count for each other, so these follow each other."""
    cluster = fleet.cluster
    first, expected = home(cluster, "task-0"), ask(cluster, "task-0").json()["predictions"]
    cluster.replicas[first].send_signal(signal.SIGSTOP)
    asked: list[Future[httpx2.Response]] = []
    with ThreadPoolExecutor(_MAX_WAITING) as callers:

        def is_one_answered() -> bool:
            if len(asked) < _MAX_WAITING:
                asked.append(callers.submit(ask, cluster, "task-0"))
            return bool(wait(asked, timeout=0.2, return_when=FIRST_COMPLETED).done)

        try:
            wait_for(is_one_answered, 60)
        finally:
            cluster.replicas[first].send_signal(signal.SIGCONT)
        answers = [one.result() for one in asked]
    assert {answer.status_code for answer in answers} == {200}
    assert all(answer.json()["predictions"] == expected for answer in answers)
    assert home(cluster, "task-0") == first


@dataclass
class Load:
    """What callers and a publisher get who send one request after another until the `end`."""

    fleet: Fleet
    inputs: Any
    end: threading.Event = field(default_factory=threading.Event)
    failures: list[str] = field(default_factory=list)
    num_answers: int = 0
    # Versions whose upload was acknowledged.
    acknowledged: set[int] = field(default_factory=set)

    def call(self, number: int) -> None:
        """Predicts with each task in turn."""
        for task in itertools.cycle(TASKS[number % len(TASKS) :] + TASKS[: number % len(TASKS)]):
            if self.end.is_set():
                return
            self._try(partial(ask, self.fleet.cluster, task, self.inputs))
            self.num_answers += 1

    def publish(self) -> None:
        """Publishes versions of one adapter."""
        for seed in itertools.count(1000 * next(_numbers)):
            if self.end.is_set():
                return
            files = {"file": self.fleet.artifact(seed)}
            answer = self._try(partial(self.fleet.cluster.client.post, "/v1/adapters", files=files))
            if answer is not None:
                self.acknowledged.add(answer.json()["version"])

    def _try(self, send: Callable[[], httpx2.Response]) -> httpx2.Response | None:
        try:
            answer = send()
        except httpx2.HTTPError as error:
            self.failures.append(repr(error))
            return None
        if answer.is_success:
            return answer
        self.failures.append(f"{answer.status_code} {answer.text[:300]}")
        return None


@contextmanager
def under_load(fleet: Fleet, num_callers: int = 4, *, inputs: Any = TEXTS, publishes: bool = True) -> Iterator[Load]:
    """Callers of all tasks, and one who publishes versions, until some have been answered after the block."""
    load = Load(fleet, inputs)
    with ThreadPoolExecutor(num_callers + 1) as callers:
        running = [callers.submit(load.call, number) for number in range(num_callers)]
        running += [callers.submit(load.publish)] if publishes else []
        try:
            wait_for(lambda: load.num_answers >= num_callers)
            yield load
            beyond = load.num_answers + num_callers
            wait_for(lambda: load.num_answers >= beyond)
        finally:
            load.end.set()
        for one in running:
            one.result()


def published(fleet: Fleet) -> set[int]:
    """The versions that the registry has."""
    answer = fleet.cluster.client.get("/v1/adapters/changed/versions", params={"limit": 1000})
    return {one["version"] for one in answer.json()["versions"]}


def test_a_killed_replica_fails_what_it_computes_and_loses_nothing(fleet: Fleet) -> None:
    """Each caller loses one request at most. Every acknowledged version is there, and another replica takes over."""
    cluster = fleet.cluster
    before = cluster.replicas
    killed = home(cluster, "task-0")
    with under_load(fleet) as load:
        before[killed].kill()
        wait_for(lambda: len(cluster.replicas.keys() - {killed}) >= 2)
        wait_for(lambda: len(cluster.metric("peltier_ready")) >= 2)
    assert len(load.failures) <= 5, load.failures
    assert load.acknowledged
    wait_for(lambda: load.acknowledged <= published(fleet), 60)
    assert home(cluster, "task-0") != killed


def test_a_proxy_that_returns_is_not_ready(fleet: Fleet) -> None:
    """Until it knows the application, it answers 503 and no other error."""
    (proxy,) = [one for one in fleet.cluster.processes if "ProxyActor" in " ".join(one.cmdline()[:1])]
    proxy.kill()
    proxy.wait(60)
    answers, deadline = Counter[int](), time.monotonic() + 120
    while answers[200] < 20:
        assert time.monotonic() < deadline, answers
        with suppress(httpx2.TransportError):
            answer = httpx2.post(f"{fleet.cluster.url}/v1/tasks/{TASKS[0]}/predict", json={"inputs": "a"}, timeout=60)
            assert answer.status_code != 503 or answer.headers["retry-after"]
            answers[answer.status_code] += 1
    assert answers.keys() <= {200, 503}


def test_queued_tokens_add_and_remove_replicas(fleet: Fleet) -> None:
    """A long queue starts a third replica, an empty one stops it again. No request and no change is lost."""
    cluster = fleet.cluster
    with under_load(fleet, 24, inputs=[TEXTS[2]] * 400, publishes=False) as load:
        wait_for(lambda: len(cluster.metric("peltier_ready")) == 3)
    assert load.failures == []
    with under_load(fleet, 2) as light:
        wait_for(lambda: len(cluster.metric("peltier_ready")) == 2)
    assert light.failures == []
    wait_for(lambda: light.acknowledged <= published(fleet), 60)


def test_a_rolling_update_fails_no_request(fleet: Fleet, tmp_path: Path) -> None:
    """Another `peltier serve --ray` on the same cluster replaces the replicas one by one under load."""
    (gcs,) = [one for one in fleet.cluster.processes if one.name() == "gcs_server"]
    (port,) = [one.laddr.port for one in gcs.net_connections("tcp") if one.status == "LISTEN"]
    old = fleet.cluster.replicas.keys()
    number = httpx2.URL(fleet.cluster.url).port
    assert number is not None
    flags = [*fleet.flags, "--min-replicas", "2", "--max-replicas", "2", "--default-top-k", "1", "--access-log"]
    with under_load(fleet, 2) as load:
        # The cluster expects the token that Ray keeps in the home directory.
        joined = {
            "RAY_ADDRESS": f"127.0.0.1:{port}",
            "RAY_AUTH_MODE": "token",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        }
        update = RayCluster(tmp_path / "log", *flags, port=number, **joined, **SECRET)
        try:
            update.wait_until_ready()
            wait_for(lambda: len(fleet.cluster.replicas.keys() - old) == 2)
            wait_for(lambda: not fleet.cluster.replicas.keys() & old)
            assert len(ask(fleet.cluster, "task-0").json()["predictions"][0]["scores"]) == 1
            assert load.failures == []
        finally:
            update.process.kill()
            update.end()
    wait_for(lambda: load.acknowledged <= published(fleet), 60)


def test_a_worker_of_the_cluster_trains(bert_directory: Path, tmp_path: Path) -> None:
    """In a task of Ray's that is there while trainings wait, on the store of the replicas, which publish what it
    delivers. If its process is killed, Ray runs the task again: the training goes on, and ends once."""
    flags = ["--worker", "--backbone", str(bert_directory), "--store", str(tmp_path / "store")]
    cluster = RayCluster(tmp_path / "log", *flags, **SECRET)
    try:
        cluster.wait_until_ready()
        assert tasks(cluster) == {}
        examples = [{"text": f"{word} film {n}", "label": word} for word in ("good", "bad") for n in range(20)]
        settings = {"max_length": 32, "epochs": 150}
        body = {"task": "moods", "examples": examples, "preset": "bitfit", "settings": settings, "seed": 1}
        made = cluster.client.post("/v1/trainings", json=body).raise_for_status().json()
        shown = partial(cluster.client.get, f"/v1/trainings/{made['id']}")
        # Two steps an epoch: the checkpoint of the first one is there.
        wait_for(lambda: ((shown().json()["progress"] or {}).get("step") or 0) > 6)
        ((killed, process),) = tasks(cluster).items()
        process.kill()
        wait_for(lambda: shown().json()["status"] in {"succeeded", "failed"})
        assert shown().json()["status"] == "succeeded", shown().text
        log = cluster.client.get(f"/v1/trainings/{made['id']}/events").text
        assert log.count("has begun the training") == 2, log
        assert "event: checkpoint" in log, log
        assert shown().json()["adapter"] == "moods@1"
        versions = cluster.client.get("/v1/adapters/moods/versions").json()["versions"]
        assert [one["version"] for one in versions] == [1]
        assert ask(cluster, "moods").json()["predictions"][0].keys() >= {"label"}
        wait_for(lambda: tasks(cluster) == {})
        assert killed not in {one.pid for one in cluster.processes}
    finally:
        cluster.end()


def tasks(cluster: RayCluster) -> dict[int, psutil.Process]:
    """The processes of Ray that run a worker, by their ids."""
    found = {}
    for one in cluster.processes:
        with suppress(psutil.NoSuchProcess, IndexError):
            if one.cmdline()[0].startswith("ray::peltier worker"):
                found[one.pid] = one
    return found


def test_a_replica_that_cannot_load_ends_the_command(tmp_path: Path) -> None:
    """With the sentence of the replica, and without a process that stays."""
    missing = tmp_path / "missing"
    cluster = RayCluster(tmp_path / "log", "--backbone", str(missing), "--store", str(tmp_path / "store"))
    try:
        assert cluster.process.wait(400) == 1
    finally:
        cluster.end()
    # Ray's own processes may write after it.
    assert f"error: Ray Serve started no replica: backbone {str(missing)!r}" in cluster.log
