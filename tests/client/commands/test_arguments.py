"""Errors name the next step, and shells complete the names of tasks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from peltier_client.commands.arguments import with_next_steps
from peltier_client.errors import (
    AdapterNotFound,
    ConnectionFailed,
    Forbidden,
    PeltierError,
    QuotaExceeded,
    Unauthorized,
    VersionNotFound,
)
from peltier_client.synchronous import Client

STEPS = {
    "adapter": (AdapterNotFound("adapter 'sst' does not exist"), "see: peltier list"),
    "version": (VersionNotFound("adapter 'sst2' has no version 9; its newest is 3"), "see: peltier versions sst2"),
    "scope": (
        Forbidden("this needs the scope 'publish'; the key's scopes are: predict"),
        "ask an administrator for a key with this scope: peltier keys create --scope publish",
    ),
    "key": (Unauthorized("no"), "check PELTIER_API_KEY or --api-key"),
    "a broken connection": (ConnectionFailed("the connection to http://h broke: reset"), None),
    "a quota": (QuotaExceeded("later"), None),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_next_step_follows_the_message(name: str) -> None:
    """After a semicolon; the error stays of its kind."""
    error, step = STEPS[name]
    said = error.message
    with pytest.raises(type(error)) as caught, with_next_steps("plt_x"):
        raise error
    assert str(caught.value) == caught.value.message == (f"{said}; {step}" if step else said)


def test_an_unreachable_server() -> None:
    """How to start one, or name another."""
    with (
        pytest.raises(PeltierError) as caught,
        with_next_steps(None),
        Client("http://127.0.0.1:1", max_attempts=1) as c,
    ):
        c.info()
    assert str(caught.value).endswith(
        "; start a server with `peltier serve`, or set PELTIER_URL to the address of another"
    )


@pytest.fixture
def complete(peltier, monkeypatch: pytest.MonkeyPatch):
    """What is offered for a line, and nothing on stderr."""

    def offered(typed: str) -> list[str]:
        monkeypatch.setenv("_PELTIER_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
        outcome = peltier()
        assert (outcome.status, outcome.err) == (0, "")
        return outcome.out.split()

    return offered


def test_tasks_are_completed_from_the_server(complete, server) -> None:
    """With the key of the environment, also for the last of several tasks."""
    assert complete("peltier predict s") == ["sst2", "stsb"]
    assert complete("peltier versions ") == ["nli", "sst2", "stsb"]
    assert complete("peltier predict nli,ss") == ["nli,sst2"]
    assert complete("peltier compare n") == ["nli"]
    assert server.received[0].path == "/v1/adapters?limit=100&q=s"
    assert server.received[0].headers["authorization"] == "Bearer plt_env"


def test_without_a_server_nothing_is_offered(complete, server, refuse) -> None:
    """And nothing is said."""
    server.planned.append(refuse(401, "unauthorized"))
    assert complete("peltier predict s") == []
    assert complete("peltier predict --url http://127.0.0.1:1 s") == []


@pytest.mark.slow  # The gate asks for completions as this shell does, in the tests above.
@pytest.mark.skipif(shutil.which("bash") is None, reason="asks a real bash")
def test_a_real_bash_completes_tasks(server) -> None:
    """With what `peltier --show-completion` prints."""
    script = (
        'eval "$(peltier --show-completion)"; COMP_WORDS=(peltier delete n) COMP_CWORD=2; '
        '_peltier_completion peltier; echo "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PELTIER_URL": server.url}
    done = subprocess.run(["/bin/bash", "-c", script], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("nli\n", "")
