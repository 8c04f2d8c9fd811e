"""Trainings on the command line."""

import json
import os
import signal

import pytest

from tests.client.test_trainings import TRAINING, happening

PROGRESS = {
    "step": 40,
    "max_steps": 200,
    "epoch": 2.0,
    "loss": 0.51234,
    "metric": "accuracy",
    "value": 0.875,
    "best": 0.875,
    "best_step": 40,
    "learning_rate": 0.001,
    "seconds_left": 90.0,
}
DONE = {
    **TRAINING,
    "status": "succeeded",
    "adapter": "film@2",
    "metrics": {"f1": 0.5, "accuracy": 0.875},
    "request": {"preset": "lora", "settings": {"rank": 4}},
    "cost": {"seconds": 61.5},
}


def test_a_list_of_trainings(peltier, server, answer) -> None:
    """Each with how far it is or what came of it; an empty list says how to begin one."""
    running = {**TRAINING, "id": "trn_2", "status": "running", "progress": PROGRESS, "seconds_left": 90.0}
    failed = {**TRAINING, "id": "trn_3", "status": "failed", "reason": "row 3 has [no] label"}
    server.planned.append(answer(200, {"trainings": [failed, running, DONE]}))
    header, *lines = peltier("trainings", "list").out.splitlines()
    assert header.split() == ["id", "task", "status", "progress", "created", "result"]
    assert "row 3 has [no] label" in lines[0]
    assert "step 40 of 200, 2 min left" in lines[1]
    assert lines[2].split()[-1] == "film@2"
    server.planned.append(answer(200, {"trainings": []}))
    assert "peltier train --server" in peltier("trainings", "list", "--status", "running").out
    assert server.received[-1].path.endswith("&status=running")


def test_one_training(peltier, server, answer) -> None:
    """Everything for people or for machines; a wrong id names the next step."""
    server.planned.append(answer(200, DONE))
    shown = peltier("trainings", "show", "trn_1").out
    for line in ("adapter   film@2", "metrics   accuracy 0.8750, f1 0.5000", "settings  rank 4", "time      61.5 s"):
        assert line in shown
    server.planned.append(answer(200, DONE))
    assert json.loads(peltier("trainings", "show", "trn_1", "--json").out)["metrics"]["f1"] == 0.5
    outcome = peltier("trainings", "show", "trn_9")
    assert outcome.status == 1


def test_watching_a_training(peltier, server, answer, stream_of) -> None:
    """Validations look as they do in a local training; then the result."""
    server.planned.append(stream_of(happening(1, **PROGRESS), happening(2, "state", state="succeeded")))
    server.planned.append(answer(200, DONE))
    outcome = peltier("trainings", "watch", "trn_1")
    line = "epoch 2  step 40/200  loss 0.5123  accuracy 0.8750  rate 1.0e-03  best"
    assert outcome.err.splitlines() == [line, "Event 2."]
    assert "film@2" in outcome.out


def test_a_watched_training_that_fails(peltier, server, answer, stream_of) -> None:
    """Status 1 and one line with the reason."""
    server.planned.append(stream_of(happening(2, "state", state="failed")))
    server.planned.append(answer(200, {**TRAINING, "status": "failed", "reason": "row 3 has no label"}))
    outcome = peltier("trainings", "watch", "trn_1")
    assert outcome.status == 1
    assert outcome.err.splitlines()[-1] == "error: training trn_1 of film failed: row 3 has no label"


def test_an_interrupt_leaves_the_training_running(peltier, server, stream_of) -> None:
    """And says how to watch or cancel it."""
    stopped = stream_of(happening(1, **PROGRESS))
    stopped.before = lambda: os.kill(os.getpid(), signal.SIGINT)
    server.planned.append(stopped)
    outcome = peltier("trainings", "watch", "trn_1")
    assert outcome.status == 130
    watch, cancel = (f"peltier trainings {word} trn_1 --url {server.url}" for word in ("watch", "cancel"))
    assert f"the training goes on; watch it with: {watch}; or cancel it with: {cancel}" in outcome.err
    assert [one.method for one in server.received] == ["GET"]


@pytest.mark.parametrize(
    ("word", "status", "wish", "told"),
    [
        ("pause", "paused", None, "trn_1 is paused"),
        ("pause", "running", "pause", "trn_1 is running; it is paused when its worker learns of it"),
        ("resume", "queued", None, "trn_1 is queued"),
        ("cancel", "cancelled", None, "trn_1 is cancelled"),
    ],
)
def test_changes_say_what_they_did(peltier, server, answer, word, status, wish, told):
    """A running training changes later."""
    server.planned.append(answer(200, {**TRAINING, "status": status, "wish": wish}))
    assert peltier("trainings", word, "trn_1").out == f"{told}\n"
    assert server.received[0].path == f"/v1/trainings/trn_1/{word}"


def test_a_deleted_training(peltier, server, answer, refuse) -> None:
    """One line; a training that is unknown names the next step."""
    server.planned.append(answer(204))
    assert peltier("trainings", "delete", "trn_1").out == "deleted trn_1\n"
    server.planned.append(refuse(404, "training_not_found", "no training 'trn_1'"))
    assert "see: peltier trainings list" in peltier("trainings", "delete", "trn_1").err
