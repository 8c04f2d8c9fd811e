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


def plan(server: Any, answer: Any, *then: Any) -> None:
    """Both files are accepted and the training is queued."""
    server.planned.extend([answer(201, FILE), answer(201, {**FILE, "id": "file_2"}), answer(202, TRAINING), *then])


def test_the_server_trains(peltier: Peltier, server: Any, answer: Any, stream_of: StreamOf, words: list[str]) -> None:
    """It gets the files, which it then owns, and what was given; progress is on stderr, the result on stdout."""
    events = stream_of(happening(1, **PROGRESS), happening(2, "state", state="succeeded"))
    plan(server, answer, events, answer(200, DONE))
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
def test_the_version_is_tried_behind_an_alias(
    peltier: Peltier, server: Any, answer: Any, stream_of: StreamOf, words: list[str], guard: str, sent: dict[str, Any]
) -> None:
    """By a guarded change, in shadow or with a share of the requests."""
    plan(server, answer, stream_of(happening(1, "state", state="succeeded")), answer(200, DONE))
    peltier(*words, "--alias", "production", "--guard", guard)
    assert json.loads(server.received[2].body)["publish"] == {"alias": "production", "guard": sent}


@pytest.mark.parametrize(
    ("flags", "status", "reason"),
    [
        (["--guard", "shadow"], 1, "--guard is not possible without --alias"),
        (["--alias", "production", "--guard", "2"], 2, "guard '2' is neither shadow nor a share between 0 and 1"),
    ],
)
def test_a_wrong_guard_is_refused(
    peltier: Peltier, server: Any, words: list[str], flags: list[str], status: int, reason: str
) -> None:
    """In one sentence, before anything is sent."""
    outcome = peltier(*words, *flags)
    assert outcome.status == status
    assert reason in " ".join(outcome.err.split())
    assert not server.received


def test_the_result_as_json(peltier: Peltier, server: Any, answer: Any, stream_of: StreamOf, words: list[str]) -> None:
    """The metrics, as a local training prints them, with the version."""
    plan(server, answer, stream_of(happening(1, "state", state="succeeded")), answer(200, DONE))
    found = json.loads(peltier(*words, "--json").out)
    assert found == {"metrics": {"f1": 0.5, "accuracy": 0.875}, "adapter": "film@2", "training": "trn_1"}


def test_a_failed_training_is_one_line(
    peltier: Peltier, server: Any, answer: Any, stream_of: StreamOf, words: list[str]
) -> None:
    """With status 1."""
    failed = {**TRAINING, "status": "failed", "reason": "row 3 has no label"}
    plan(server, answer, stream_of(happening(1, "state", state="failed")), answer(200, failed))
    outcome = peltier(*words)
    assert outcome.status == 1
    assert outcome.err.splitlines()[-1] == "error: training trn_1 of film failed: row 3 has no label"


def test_an_interrupt_leaves_it_running(
    peltier: Peltier, server: Any, answer: Any, stream_of: StreamOf, words: list[str]
) -> None:
    """Nothing is cancelled or deleted, and the output says how to go on."""
    stopped = stream_of(happening(1, **PROGRESS))
    stopped.before = lambda: os.kill(os.getpid(), signal.SIGINT)
    plan(server, answer, stopped)
    outcome = peltier(*words)
    assert outcome.status == 130
    assert f"watch it with: peltier trainings watch trn_1 --url {server.url}; or cancel" in outcome.err
    assert [one.method for one in server.received] == ["POST", "POST", "POST", "GET"]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--backbone", "minilm"], "--backbone with --server is not possible: an option of a training on this machine"),
        (
            ["--output", "film.safetensors", "--device", "cpu"],
            "--output and --device with --server is not possible: options of a training on this machine",
        ),
        (["--resume"], "--resume with --server"),
        (["--threads", "2"], "--threads with --server"),
        (["--skip-bad-rows"], "--skip-bad-rows with --server"),
        (["--no-merge-report"], "--merge-report with --server"),
    ],
)
def test_options_of_this_machine_are_refused(
    peltier: Peltier, server: Any, words: list[str], flags: list[str], reason: str
) -> None:
    """In one sentence, before anything is sent."""
    outcome = peltier(*words, *flags)
    assert outcome.status == 1
    assert reason in outcome.err
    assert not server.received


def test_a_url_that_is_none_is_wrong_usage(peltier: Peltier, words: list[str]) -> None:
    """Told before anything is read."""
    assert peltier(*words, "--server", "nonsense").status == 2


def test_what_only_a_server_is_asked_for(
    peltier: Peltier, server: Any, answer: Any, stream_of: StreamOf, words: list[str]
) -> None:
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


def test_a_file_and_a_share_are_refused(peltier: Peltier, words: list[str]) -> None:
    """Before anything is uploaded."""
    outcome = peltier(*words, "--validation-share", "0.3")
    assert outcome.status == 1
    assert "--validation and --validation-share are given; a training has one of them" in outcome.err


def test_they_need_a_server(peltier: Peltier, words: list[str]) -> None:
    """And a training on this machine needs validation rows."""
    local = [word for word in words if word not in ("--server", words[2])]
    outcome = peltier(*local, "--alias", "next")
    assert outcome.status == 2
    assert "--alias: it needs --server" in outcome.err
    outcome = peltier(*local, "--guard", "shadow")
    assert outcome.status == 2
    assert "--guard: it needs --server" in outcome.err
    place = local.index("--validation")
    outcome = peltier(*local[:place])
    assert outcome.status == 2
    assert "--validation: a training on this machine needs it" in outcome.err


def test_a_server_gets_maps_and_texts_of_labels(
    peltier: Peltier, server: Any, answer: Any, stream_of: StreamOf, words: list[str]
) -> None:
    """`--targets` and `--set targets` have names of their own in a request."""
    plan(server, answer, stream_of(happening(1, "state", state="succeeded")), answer(200, DONE))
    outcome = peltier(*words, "--preset", "lora", "--set", "targets=query", "--targets", "words")
    assert outcome.status == 0, outcome.err
    assert json.loads(server.received[2].body)["settings"] == {"targets": "query", "label_targets": "words"}
