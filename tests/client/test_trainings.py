"""Files and trainings, over a real socket, with both clients."""

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peltier_client import (
    AsyncClient,
    Client,
    ConnectionFailed,
    InvalidInput,
    TimedOut,
    Training,
    TrainingFailed,
    TrainingNotFound,
    UnexpectedAnswer,
)
from peltier_client.exchange import patience

ROWS = [{"text": "a gem", "label": "good"}, {"text": "a bore", "label": "bad"}]
AT = "2026-11-26T12:00:00Z"
TRAINING: dict[str, Any] = {
    "id": "trn_1",
    "task": "film",
    "status": "queued",
    "cost": {"seconds": 0.0},
    "created_at": AT,
}
FILE: dict[str, Any] = {
    "id": "file_1",
    "bytes": 8,
    "created_at": 0,
    "filename": "a.jsonl",
    "purpose": "fine-tune",
    "rows": 2,
}


def happening(number: int, kind: str = "progress", **data: object) -> str:
    """An event as it is sent."""
    body = {"id": number, "at": AT, "kind": kind, "message": f"Event {number}.", "data": data}
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(body)}"


async def test_events_go_on_after_a_broken_connection(client, async_client, server, stream_of, refuse):
    """With the next one: the id of the last one is sent. Heartbeats are no events, and the final state is the end."""
    for events in (client.trainings.events("trn_1"), async_client.trainings.events("trn_1")):
        server.received.clear()
        broken = stream_of(": beat", happening(7), happening(8))
        broken.headers |= {"content-length": "10000", "connection": "close"}
        rest = stream_of(happening(9), happening(10, "state", state="succeeded"))
        away = refuse(503, "draining", retry_after="0")
        server.planned.extend([broken, away, stream_of(), rest])
        heard = [*events] if isinstance(events, Iterator) else [event async for event in events]
        assert [event.id for event in heard] == [7, 8, 9, 10]
        assert heard[-1].message == "Event 10."
        paths = {request.path for request in server.received}
        assert paths == {"/v1/trainings/trn_1/events"}
        assert [one.headers.get("last-event-id") for one in server.received] == [None, "8", "8", "8"]


def test_a_training_that_has_ended_has_no_more_events(client: Client, server, answer) -> None:
    """After its last one the server answers 204."""
    server.planned.append(answer(204))
    assert list(client.trainings.events("trn_1", after=10)) == []
    assert server.received[0].headers["last-event-id"] == "10"


def test_a_failed_training_that_resumes_has_more_events(client: Client, server, stream_of) -> None:
    """An earlier final state is not the end."""
    states = ("failed", "queued", "running", "succeeded")
    server.planned.append(stream_of(*(happening(n, "state", state=state) for n, state in enumerate(states, 1))))
    assert [event.data["state"] for event in client.trainings.events("trn_1")] == list(states)


def test_errors_of_the_events_are_raised(client, server, stream_of, refuse, closed_url, monkeypatch):
    """Those that another try would not mend, at once; and a server that stays away, after a time."""
    server.planned.append(refuse(404, "training_not_found", "no training 'trn_1'"))
    with pytest.raises(TrainingNotFound, match="no training 'trn_1'"):
        next(client.trainings.events("trn_1"))
    server.planned.append(stream_of("data: nonsense"))
    with pytest.raises(UnexpectedAnswer, match="does not belong to a training"):
        next(client.trainings.events("trn_1"))
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0)
    with Client(closed_url, max_attempts=1) as lonely:
        with pytest.raises(ConnectionFailed):
            next(lonely.trainings.events("trn_1"))
        with pytest.raises(ConnectionFailed):
            lonely.trainings.wait("trn_1")


def test_few_rows_are_sent_with_the_training(client: Client, server, answer) -> None:
    """A list or any iterable of rows; only what was given is in the body."""
    server.planned.append(answer(202, TRAINING))
    given = client.train(
        "film",
        iter(ROWS),
        validation=ROWS[:1],
        preset="lora",
        settings={"epochs": 3, "rank": 4},
        seed=5,
        budget={"minutes": 2},
        alias="live",
        wait=False,
    )
    assert (given.id, given.status) == ("trn_1", "queued")
    assert json.loads(server.received[0].body) == {
        "task": "film",
        "preset": "lora",
        "settings": {"epochs": 3, "rank": 4},
        "examples": ROWS,
        "validation": ROWS[:1],
        "seed": 5,
        "budget": {"minutes": 2.0},
        "publish": {"alias": "live"},
    }
    server.planned.append(answer(202, TRAINING))
    client.train("film", ROWS, validation=0.25, wait=False)
    body = json.loads(server.received[1].body)
    assert body == {"task": "film", "examples": ROWS, "validation_share": 0.25}


def test_paths_and_many_rows_are_uploaded_first(client: Client, server, answer, tmp_path: Path) -> None:
    """A compressed file is sent decompressed, under its name without .gz."""
    path = tmp_path / "film.csv.gz"
    path.write_bytes(gzip.compress("text,label\na gém,good\n".encode()))
    many = [{"text": f"text {number}", "label": "good"} for number in range(10_001)]
    server.planned.extend([answer(201, FILE), answer(201, {**FILE, "id": "file_2"}), answer(202, TRAINING)])
    client.train("film", many, validation=path, wait=False)
    first, second, begun = server.received
    assert b'filename="examples.jsonl"' in first.body
    assert first.body.count(b'{"text": "text ') == len(many)
    assert b'filename="film.csv"' in second.body
    assert "a gém,good\n".encode() in second.body
    assert b"fine-tune" in second.body
    asked = {"task": "film", "file_id": "file_1", "validation_file_id": "file_2", "owns_files": True}
    assert json.loads(begun.body) == asked


def test_a_refused_training_leaves_no_file(client, server, answer, refuse, tmp_path):
    """What was uploaded for it is deleted."""
    path = tmp_path / "film.jsonl"
    path.write_text(json.dumps(ROWS[0]))
    deleted = {"id": "file_1", "deleted": True}
    server.planned.extend([answer(201, FILE), refuse(422, "invalid_input", "no such preset"), answer(200, deleted)])
    with pytest.raises(InvalidInput, match="no such preset"):
        client.train("film", path, preset="nonsense")
    assert [f"{one.method} {one.path}" for one in server.received][-1] == "DELETE /v1/files/file_1"


@pytest.mark.parametrize(
    ("examples", "reason"),
    [
        ({"text": "a"}, "examples is of the type dict; it must be rows, or the path of a file"),
        ([["a", "good"]], r"row 0 of examples is \['a', 'good'\]; it must be a mapping of columns to values"),
        ([ROWS[0], {"text": float("nan")}], "row 1 of examples cannot be sent as JSON"),
        ([], "examples: list should have at least 1 item"),
        ("film.xlsx", r"film.xlsx is not a file of examples; its name must end in .jsonl, .csv, .tsv \(.gz too\)"),
    ],
)
def test_examples_that_cannot_be_sent(client: Client, server, examples, reason: str) -> None:
    """Are refused in one sentence, before anything is sent."""
    with pytest.raises(InvalidInput, match=reason):
        client.train("film", examples)
    assert not server.received


def test_files_that_cannot_be_read(client: Client, server, tmp_path: Path) -> None:
    """A damaged one, and one that does not exist."""
    path = tmp_path / "film.jsonl.gz"
    with pytest.raises(FileNotFoundError):
        client.train("film", path)
    path.write_bytes(gzip.compress(b"text")[:-4])
    with pytest.raises(InvalidInput, match="cannot be decompressed"):
        client.train("film", path)
    assert not server.received


async def test_train_waits(async_client: AsyncClient, server, answer, tmp_path: Path) -> None:
    """It returns the training that succeeded, although a proxy found the server away for a moment."""
    path = tmp_path / "film.jsonl"
    path.write_text(json.dumps(ROWS[0]))
    done = {**TRAINING, "status": "succeeded", "adapter": "film@1"}
    server.planned.extend([answer(201, FILE), answer(202, TRAINING), answer(200, TRAINING)])
    server.planned.extend([answer(502), answer(200, done)])
    found = await async_client.train("film", path)
    assert isinstance(found, Training)
    assert found.adapter == "film@1"


def test_a_training_that_does_not_succeed_says_why(client: Client, server, answer) -> None:
    """In one sentence, for one that failed and for one that was cancelled."""
    failed = {**TRAINING, "status": "failed", "reason": "row 3 has no label"}
    server.planned.extend([answer(202, TRAINING), answer(200, failed)])
    with pytest.raises(TrainingFailed, match=r"^training trn_1 of film failed: row 3 has no label$"):
        client.train("film", ROWS)
    server.planned.extend([answer(202, TRAINING), answer(200, {**TRAINING, "status": "cancelled"})])
    with pytest.raises(TrainingFailed, match=r"^training trn_1 of film was cancelled$"):
        client.train("film", ROWS)


def test_waiting_can_be_bounded(client: Client, server, answer) -> None:
    """By a time after which the training goes on without the caller."""
    server.planned.append(answer(200, TRAINING))
    with pytest.raises(TimedOut, match=r"training trn_1 has not ended within 0.1 s"):
        client.trainings.wait("trn_1", timeout=0.1)


def test_lists_follow_the_pages(client: Client, server, answer) -> None:
    """Of trainings by a cursor, and of files by the last id."""
    second = {**TRAINING, "id": "trn_0"}
    server.planned.append(answer(200, {"trainings": [TRAINING], "next_cursor": "trn_1"}))
    server.planned.append(answer(200, {"trainings": [second], "next_cursor": None}))
    assert [one.id for one in client.trainings.list(status="queued")] == ["trn_1", "trn_0"]
    assert server.received[1].path == "/v1/trainings?limit=100&status=queued&cursor=trn_1"
    server.planned.append(answer(200, {"data": [FILE], "last_id": "file_1", "has_more": True}))
    server.planned.append(answer(200, {"data": [{**FILE, "id": "file_0"}], "last_id": "file_0"}))
    assert [one.id for one in client.files.list()] == ["file_1", "file_0"]
    assert server.received[3].path == "/v1/files?limit=100&after=file_1"


async def test_a_lost_answer_makes_no_second_training(client, async_client, server, answer):
    """Each call has an idempotency key of its own, and sends it again after a broken connection."""
    lost = answer(202, b"{", {"content-length": "99", "connection": "close"})
    server.planned.extend([lost, answer(202, TRAINING)] * 2)
    assert client.trainings.create("film", file_id="file_1").id == "trn_1"
    assert (await async_client.trainings.create("film", file_id="file_1")).id == "trn_1"
    first, repeated, second, repeated_second = (one.headers["idempotency-key"] for one in server.received)
    assert first == repeated != second == repeated_second


def test_the_time_of_a_caller_ends_a_call_with_a_key(server, answer) -> None:
    """The caller is told, and nothing is sent again."""
    server.planned.append(answer(202, TRAINING, before=lambda: time.sleep(1)))
    with Client(server.url, timeout=0.2) as client, pytest.raises(TimedOut):
        client.trainings.create("film", file_id="file_1")
    assert len(server.received) == 1
