"""Completion of task names."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.typed_commands import Peltier, peltier

__all__ = ["peltier"]
Complete = Callable[[str], list[str]]


@pytest.fixture
def complete(peltier: Peltier, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """What is offered for a line, and nothing on stderr."""

    def offered(typed: str) -> list[str]:
        monkeypatch.setenv("_PELTIER_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
        outcome = peltier()
        assert (outcome.status, outcome.err) == (0, "")
        return outcome.out.split()

    return offered


def test_tasks_are_completed_from_the_server(complete: Complete, server: Any) -> None:
    """With the key of the environment, also for the last of several tasks."""
    assert complete("peltier predict s") == ["sst2", "stsb"]
    assert complete("peltier versions ") == ["nli", "sst2", "stsb"]
    assert complete("peltier predict nli,ss") == ["nli,sst2"]
    assert complete("peltier compare n") == ["nli"]
    assert server.received[0].path == "/v1/adapters?limit=100&q=s"
    assert server.received[0].headers["authorization"] == "Bearer plt_env"


def test_without_a_server_nothing_is_offered(complete: Complete, server: Any, refuse: Any) -> None:
    """And nothing is said."""
    server.planned.append(refuse(401, "unauthorized"))
    assert complete("peltier predict s") == []
    assert complete("peltier predict --url http://127.0.0.1:1 s") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="asks a real bash")
def test_a_real_bash_completes_tasks(server: Any) -> None:
    """With what `peltier --show-completion` prints."""
    script = (
        'eval "$(peltier --show-completion)"; COMP_WORDS=(peltier delete n) COMP_CWORD=2; '
        '_peltier_completion peltier; echo "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PELTIER_URL": server.url}
    done = subprocess.run(["/bin/bash", "-c", script], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("nli\n", "")
