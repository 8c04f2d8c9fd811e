"""Bounds of trainings, their files and their events."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import httpx2
import pytest
from peltier_server.extensions.trainings import event_feed
from peltier_store.registry.extensions import queue, training_owner, training_state
from peltier_store.registry.extensions.queue_records import NewEvent

from tests.server.limits.probe import Met, probe
from tests.server.limits.servers import Servers, Small

_ROWS = [{"text": "a gem", "label": "good"}, {"text": "a bore", "label": "bad"}]


def _send(small: Small, data: bytes, name: str = "a.jsonl") -> httpx2.Response:
    return small.client.post("/v1/files", files={"file": (name, data)}, data={"purpose": "fine-tune"})


def _train(small: Small, examples: Sequence[object] = _ROWS, **body: object) -> httpx2.Response:
    return small.client.post("/v1/trainings", json={"task": "demo", "examples": examples, **body})


probe("size of a file of examples")(lambda servers: _send(servers.bert, b" " * (2 * 1024 * 1024 + 10)))
probe("rows of a file")(lambda servers: _send(servers.bert, b'{"a": 1}\n' * 9))
probe("blank lines of a file")(lambda servers: _send(servers.bert, b"\n" * 9))
probe("size of a row of several lines", "peltier_server.extensions.files.examples.MAX_LINE_BYTES")(
    lambda servers: _send(servers.bert, b'a,b\n1,"' + b"\n" * 9000, "a.csv")
)
probe("size of a line of a file", "peltier_server.extensions.files.examples.MAX_LINE_BYTES")(
    lambda servers: _send(servers.bert, b'{"a": "%s"}' % (b"a" * 1024 * 1024))
)
probe("strings, commas and brackets of a line of JSON", "peltier_server.extensions.files.examples.MAX_ROW_TOKENS")(
    lambda servers: _send(servers.bert, b'{"a": [%s1]}' % (b"1," * 65_536))
)
probe("columns of a row", "peltier_client.protocol.trainings.MAX_COLUMNS")(
    lambda servers: _send(servers.bert, b"{%s}" % b",".join(b'"%d": 1' % one for one in range(65)))
)
probe("characters of a file's name", "peltier_server.extensions.files.intake.MAX_FILE_NAME_CHARS")(
    lambda servers: _send(servers.bert, b'{"a": 1}', "a" * 250 + ".jsonl")
)


@probe(
    "rows that are sent with a training, within `max_body_bytes`",
    "peltier_client.protocol.trainings.MAX_INLINE_EXAMPLES",
)
def _(servers: Servers) -> Met:
    rows = ",".join(['{"a":1}'] * 10_001)
    json = {"content-type": "application/json"}
    return servers.bert.client.post("/v1/trainings", content=f'{{"task":"demo","examples":[{rows}]}}', headers=json)


@probe("nested lists and objects of such a row", "peltier_client.protocol.trainings.MAX_ROW_DEPTH")
def _(servers: Servers) -> Met:
    value: Any = "text"
    for _ in range(9):
        value = [value]
    return _train(servers.bert, [{"text": value}])


probe("settings of a training", "peltier_client.protocol.trainings.MAX_SETTINGS")(
    lambda servers: _train(servers.bert, settings={f"s{number}": 1 for number in range(65)})
)
probe(
    "characters of a label, a column, or the name or value of a setting",
    "peltier_client.protocol.trainings.MAX_WORD_LEN",
)(lambda servers: _train(servers.bert, label_column="a" * 257))
probe("multiplier of a training's learning rate", "peltier_client.protocol.trainings.MAX_MULTIPLIER")(
    lambda servers: _train(servers.bert, learning_rate_multiplier=1001)
)
probe("labels that a training names", "peltier_client.protocol.trainings.MAX_TRAINED_LABELS")(
    lambda servers: _train(servers.bert, labels=[str(number) for number in range(4097)])
)
probe("steps of a training, in its budget", "peltier_client.protocol.trainings.MAX_TRAINING_STEPS")(
    lambda servers: _train(servers.bert, budget={"steps": 10_000_001})
)
probe("minutes of a training, in its budget", "peltier_client.protocol.trainings.MAX_TRAINING_MINUTES")(
    lambda servers: _train(servers.bert, budget={"minutes": 10_081})
)


def _stream_without(servers: Servers, bound: str) -> httpx2.Response:
    with servers.bert.tenant() as tenant, pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_feed, bound, 0)
        training = _train(tenant).raise_for_status().json()["id"]
        answer = tenant.client.get(f"/v1/trainings/{training}/events")
        tenant.client.post(f"/v1/trainings/{training}/cancel").raise_for_status()
        return answer


probe("streams of events", "peltier_server.extensions.trainings.event_feed.MAX_STREAMS")(
    lambda servers: _stream_without(servers, "MAX_STREAMS")
)
probe("streams of events, of one tenant", "peltier_server.extensions.trainings.event_feed.MAX_STREAMS_OF_ONE")(
    lambda servers: _stream_without(servers, "MAX_STREAMS_OF_ONE")
)


@probe("entries in the log of a training", "peltier_store.registry.extensions.training_state.MAX_EVENTS")
def _(servers: Servers) -> Met:
    trainings = servers.bert.service.store.registry.trainings

    async def report() -> None:
        training = await trainings.claim("probe")
        assert training is not None
        await trainings.renew(training.id, "probe", events=[NewEvent("progress", f"{one}") for one in range(9)])
        await trainings.settle(training.id, "probe", state="failed", reason="the probe has ended")

    with servers.bert.tenant() as tenant, patch.object(training_state, "MAX_EVENTS", 4):
        training = _train(tenant).raise_for_status().json()["id"]
        servers.bert.run(report())
        events = tenant.client.get(f"/v1/trainings/{training}/events").text
    assert "data: " in events
    assert '"message":"0"' not in events
    assert '"message":"8"' in events
    return "the oldest entries of progress are dropped"


@probe(
    "trainings of a tenant without the quota `max_trainings` that have not ended",
    "peltier_store.registry.extensions.training_owner.MAX_TRAININGS",
)
def _(servers: Servers) -> Met:
    with servers.bert.tenant() as tenant, patch.object(training_owner, "MAX_TRAININGS", 0):
        return _train(tenant)


@probe(
    "workers that end before the next checkpoint of a training",
    "peltier_store.registry.extensions.queue.MAX_ATTEMPTS",
)
def _(servers: Servers) -> Met:
    trainings = servers.bert.service.store.registry.trainings

    async def die() -> None:
        while await trainings.claim("probe") is not None:
            pass

    with servers.bert.tenant() as tenant, patch.object(queue, "LEASE", timedelta(0)):
        training = _train(tenant).raise_for_status().json()["id"]
        servers.bert.run(die())
        ended = tenant.client.get(f"/v1/trainings/{training}").json()
    assert (ended["status"], ended["attempts"]) == ("failed", queue.MAX_ATTEMPTS)
    return "the training fails"


@probe("trainings that have not ended")
def _(servers: Servers) -> Met:
    with servers.bert.tenant(max_trainings=0) as tenant:
        return _train(tenant)


@probe("examples of a training")
def _(servers: Servers) -> Met:
    with servers.bert.tenant(max_training_rows=1) as tenant:
        return _train(tenant)


@probe("minutes of workers a day")
def _(servers: Servers) -> Met:
    trainings = servers.bert.service.store.registry.trainings

    async def work() -> None:
        training = await trainings.claim("probe")
        assert training is not None
        await trainings.settle(training.id, "probe", state="failed", reason="the probe has ended", seconds=60.0)

    with servers.bert.tenant(max_training_minutes_per_day=0.5) as tenant:
        _train(tenant).raise_for_status()
        servers.bert.run(work())
        return _train(tenant)
