"""Batches on the command line."""

import json
import os
import signal
from pathlib import Path

import pytest
from peltier_client.commands import batches

from tests.client.test_trainings import FILE

BATCH = {
    "id": "batch_1", "endpoint": "/v1/rerank", "input_file_id": FILE["id"], "completion_window": "24h", "created_at": 0,
    "expires_at": 86_400, "status": "in_progress", "request_counts": {"total": 2, "completed": 1, "failed": 0},
}  # fmt: skip
COUNTS = {"total": 2, "completed": 2, "failed": 0}
DONE = {**BATCH, "status": "completed", "output_file_id": "file-2", "request_counts": COUNTS}
FAILED = {**DONE, "error_file_id": "file-3", "request_counts": {"total": 2, "completed": 1, "failed": 1}}
REQUEST = {"custom_id": "a", "method": "POST", "url": "/v1/rerank", "body": {}}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A file of one request."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(REQUEST) + "\n")
    return path


def test_a_file_of_requests_is_run(peltier, server, answer, rows: Path) -> None:
    """Its answers go to standard output, and how far it is to the other one."""
    server.planned.extend([answer(200, FILE), answer(200, BATCH), answer(200, BATCH), answer(200, BATCH)])
    server.planned.extend([answer(200, DONE), answer(200, "answers")])
    outcome = peltier("batches", "run", str(rows))
    assert (outcome.status, outcome.out) == (0, '"answers"')
    assert outcome.err.splitlines() == [
        "batch_1  in_progress  1 of 2 answered",
        "batch_1  completed  2 of 2 answered",
    ]
    created = server.received[1]
    assert (created.path, json.loads(created.body)["endpoint"]) == ("/v1/batches", "/v1/rerank")


def test_empty_lines_before_the_first_request_are_passed_over(peltier, server, answer, tmp_path):
    """As the server does."""
    path = tmp_path / "rows.jsonl"
    path.write_text("\n  \n" + json.dumps(REQUEST) + "\n")
    server.planned.extend([answer(200, FILE), answer(200, BATCH)])
    assert peltier("batches", "run", str(path), "--no-wait").status == 0
    assert json.loads(server.received[1].body)["endpoint"] == "/v1/rerank"


def test_an_output_that_cannot_be_written_is_refused_first(peltier, server, rows, tmp_path):
    """Nothing is sent, so no answers stay on the server."""
    for output in (tmp_path / "none" / "answers.jsonl", tmp_path):
        outcome = peltier("batches", "run", str(rows), "--output", str(output))
        assert outcome.status == 2
        assert "must be a file in a folder that exists" in " ".join(outcome.err.replace("│", " ").split())
    assert server.received == []


def test_errors_follow_the_answers(peltier, server, answer, tmp_path: Path) -> None:
    """In one file, and the command fails."""
    server.planned.extend([answer(200, FAILED), answer(200, 1), answer(200, 2)])
    outcome = peltier("batches", "wait", "batch_1", "--output", str(tmp_path / "answers.jsonl"))
    assert outcome.status == 1
    assert (tmp_path / "answers.jsonl").read_text() == "12"
    assert outcome.err.splitlines()[-1] == (
        "error: 1 of 2 requests of batch batch_1 failed; their errors follow the answers"
    )


@pytest.mark.parametrize(
    ("status", "said"), [("failed", "failed: line 2: no"), ("cancelled", "was cancelled: line 2: no")]
)
def test_a_batch_that_is_not_completed_fails(peltier, server, answer, status, said):
    """With the reasons of the server."""
    errors = {"data": [{"code": "bad", "message": "line 2: no", "line": 2}]}
    server.planned.append(answer(200, {**BATCH, "status": status, "errors": errors}))
    outcome = peltier("batches", "wait", "batch_1")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.splitlines()[-1] == f"error: batch batch_1 {said}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[]", "line 1: it must be a JSON object with custom_id, method, url and body"),
        ("{", "line 1: it must be a JSON object with custom_id, method, url and body"),
        ('{"url": "/v1/x"}', "line 1: url is '/v1/x'; it must be one of /v1/embeddings, "),
        ('{"url": ["/v1/x"]}', "line 1: url is ['/v1/x']; it must be one of /v1/embeddings, "),
    ],
)
def test_another_file_is_refused(peltier, server, rows: Path, line: str, said: str) -> None:
    """Before anything is sent."""
    rows.write_text(line)
    outcome = peltier("batches", "run", str(rows))
    assert (outcome.status, server.received) == (1, [])
    assert said in outcome.err


def test_an_interrupted_command_leaves_the_batch(peltier, server, answer, monkeypatch):
    """And says how to get its answers."""
    server.planned.append(answer(200, BATCH))
    monkeypatch.setattr(batches._Progress, "__call__", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    outcome = peltier("batches", "wait", "batch_1")
    assert outcome.status == 130
    assert "the batch goes on; get its answers with: peltier batches wait batch_1 --url http" in outcome.err


def test_batches_are_listed_shown_and_cancelled(peltier, server, answer, refuse) -> None:
    """A wrong id names the next step."""
    server.planned.append(answer(200, {"data": [DONE], "has_more": False}))
    header, line = peltier("batches", "list").out.splitlines()
    assert header.split() == ["id", "endpoint", "status", "requests", "created"]
    assert "completed  2 of 2 answered" in line
    server.planned.append(answer(200, {"data": [], "has_more": False}))
    assert "peltier batches run FILE" in peltier("batches", "list").out
    server.planned.append(answer(200, DONE))
    shown = peltier("batches", "show", "batch_1").out
    assert "requests  2 of 2 answered" in shown
    assert "answers   file-2" in shown
    server.planned.append(answer(200, {**BATCH, "status": "cancelling"}))
    assert peltier("batches", "cancel", "batch_1").out == "batch_1 is cancelling\n"
    server.planned.append(refuse(404, "batch_not_found", "no batch 'x'"))
    assert "no batch 'x'; see: peltier batches list" in peltier("batches", "show", "x").err
