"""`peltier train --server`, with a little server."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.commands.test_trainings import DONE, PROGRESS
from tests.client.conftest import answer, refuse, server, stream_of
from tests.client.test_trainings import FILE, ROWS, TRAINING, happening
from tests.client.typed_commands import Peltier, peltier

__all__ = ["answer", "peltier", "refuse", "server", "stream_of"]

StreamOf = Callable[..., Any]


@pytest.fixture
def words(server: Any, tmp_path: Path) -> list[str]:
    """The command with two files of examples."""
    for name in ("train", "validation"):
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    train, validation = str(tmp_path / "train.jsonl"), str(tmp_path / "validation.jsonl")
    return ["train", "--server", server.url, "--task", "film", "--train", train, "--validation", validation]


Plan = Callable[..., Any]


@pytest.fixture
def plan(server: Any, answer: Any, stream_of: StreamOf) -> Plan:
    """`plan(event, …, done=…)`: both files are accepted, the training is queued, has these events, and is `done`.
    Returns the stream of events."""

    def make(*events: Any, done: Any = DONE) -> Any:
        stream = stream_of(*events or (happening(1, "state", state=done["status"]),))
        files = [answer(201, FILE), answer(201, {**FILE, "id": "file_2"})]
        server.planned.extend([*files, answer(202, TRAINING), stream, answer(200, done)])
        return stream

    return make


def test_the_server_trains(peltier: Peltier, server: Any, plan: Plan, words: list[str]) -> None:
    """It gets the files, which it then owns, and what was given; progress is on stderr, the result on stdout."""
    plan(happening(1, **PROGRESS), happening(2, "state", state="succeeded"))
    flags = ["--preset", "lora", "--set", "rank=4", "--epochs", "3", "--learning-rate", "1e-3", "--seed", "7"]
    outcome = peltier(*words, *flags, "--labels", "bad,good", "--text-column", "text", "--task-type", "classification")
    assert outcome.status == 0, outcome.err
    assert json.loads(server.received[2].body) == {
        "task": "film",
        "task_type": "classification",
        "preset": "lora",
        "settings": {"epochs": 3, "learning_rate": 0.001, "rank": "4"},
        "file_id": "file_1",
        "validation_file_id": "file_2",
        "owns_files": True,
        "text_columns": ["text"],
        "labels": ["bad", "good"],
        "seed": 7,
    }
    first, line, last = outcome.err.splitlines()
    assert (first, last) == (f"training trn_1 on {server.url}", "Event 2.")
    assert line == "epoch 2  step 40/200  loss 0.5123  accuracy 0.8750  rate 1.0e-03  best"
    assert "accuracy 0.8750" in outcome.out


@pytest.mark.parametrize(("guard", "sent"), [("shadow", {"shadow": True}), ("0.1", {"share": 0.1})])
def test_the_version_is_tried_behind_an_alias(peltier, server, plan, words, guard, sent):
    """By a guarded change, in shadow or with a share of the requests."""
    plan()
    peltier(*words, "--alias", "production", "--guard", guard)
    assert json.loads(server.received[2].body)["publish"] == {"alias": "production", "guard": sent}


def test_the_result_as_json(peltier: Peltier, plan: Plan, words: list[str]) -> None:
    """The metrics, as a local training prints them, with the version."""
    plan()
    found = json.loads(peltier(*words, "--json").out)
    assert found == {"metrics": {"f1": 0.5, "accuracy": 0.875}, "adapter": "film@2", "training": "trn_1"}


def test_a_failed_training_is_one_line(peltier: Peltier, plan: Plan, words: list[str]) -> None:
    plan(done={**TRAINING, "status": "failed", "reason": "row 3 has no label"})
    outcome = peltier(*words)
    assert outcome.status == 1
    assert outcome.err.splitlines()[-1] == "error: training trn_1 of film failed: row 3 has no label"


def test_an_interrupt_leaves_it_running(peltier: Peltier, server: Any, plan: Plan, words: list[str]) -> None:
    """Nothing is cancelled or deleted, and the output says how to go on."""
    plan(happening(1, **PROGRESS)).before = lambda: os.kill(os.getpid(), signal.SIGINT)
    outcome = peltier(*words)
    assert outcome.status == 130
    assert f"watch it with: peltier trainings watch trn_1 --url {server.url}; or cancel" in outcome.err
    assert [one.method for one in server.received] == ["POST", "POST", "POST", "GET"]


@pytest.mark.parametrize(
    ("flags", "status", "reason"),
    [
        (["--guard", "shadow"], 1, "--guard is not possible without --alias"),
        (["--alias", "production", "--guard", "2"], 2, "guard '2' is neither shadow nor a share between 0 and 1"),
        (["--validation-share", "0.3"], 1, "--validation and --validation-share are given; a training has one of them"),
        (["--server", "nonsense"], 2, "nonsense"),
        (["--backbone", "minilm"], 1, "--backbone with --server is not possible: an option of a training on this mach"),
        (
            ["--output", "film.safetensors", "--device", "cpu"],
            1,
            "--output and --device with --server is not possible: options of a training on this machine",
        ),
        (["--resume"], 1, "--resume with --server"),
        (["--threads", "2"], 1, "--threads with --server"),
        (["--skip-bad-rows"], 1, "--skip-bad-rows with --server"),
        (["--no-merge-report"], 1, "--merge-report with --server"),
    ],
)
def test_what_cannot_be_sent_is_refused(peltier, server, words, flags, status, reason):
    outcome = peltier(*words, *flags)
    assert outcome.status == status
    assert reason in " ".join(outcome.err.replace("│", " ").split())
    assert not server.received


def test_what_only_a_server_is_asked_for(peltier, server, answer, stream_of, words):
    """An alias, a budget, and a share of the examples in place of a file of validation rows."""
    events = stream_of(happening(1, "state", state="succeeded"))
    server.planned.extend([answer(201, FILE), answer(202, TRAINING), events, answer(200, DONE)])
    place = words.index("--validation")
    without = [*words[:place], *words[place + 2 :]]
    outcome = peltier(*without, "--alias", "next", "--budget-minutes", "2.5", "--validation-share", "0.3")
    assert outcome.status == 0, outcome.err
    assert json.loads(server.received[1].body) == {
        "task": "film",
        "file_id": "file_1",
        "validation_share": 0.3,
        "owns_files": True,
        "budget": {"minutes": 2.5},
        "publish": {"alias": "next"},
    }


def test_they_need_a_server(peltier: Peltier, words: list[str]) -> None:
    """And a training on this machine needs validation rows."""
    local = [word for word in words if word not in ("--server", words[2])]
    for flags, reason in (
        (["--alias", "next"], "--alias: it needs --server"),
        (["--guard", "shadow"], "--guard: it needs --server"),
    ):
        outcome = peltier(*local, *flags)
        assert (outcome.status, reason in outcome.err) == (2, True)
    outcome = peltier(*local[: local.index("--validation")])
    assert outcome.status == 2
    assert "--validation: a training on this machine needs it" in outcome.err


def test_a_server_gets_maps_and_texts_of_labels(peltier: Peltier, server: Any, plan: Plan, words: list[str]) -> None:
    """`--targets` and `--set targets` have names of their own in a request."""
    plan()
    outcome = peltier(*words, "--preset", "lora", "--set", "targets=query", "--targets", "words")
    assert outcome.status == 0, outcome.err
    assert json.loads(server.received[2].body)["settings"] == {"targets": "query", "label_targets": "words"}
