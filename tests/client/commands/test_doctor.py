"""`peltier doctor`, the part without a server's packages."""

import json
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from peltier_client.commands import doctor
from peltier_client.commands.doctor import Finding, check_server


def check(flags: Mapping[str, Any]) -> Iterator[Finding]:
    """A check of a package."""
    yield Finding("disk", "slow", f"{flags['store']} is slow", "buy [another]")


@pytest.fixture
def announce(monkeypatch: pytest.MonkeyPatch):
    """Makes one function the only check of packages."""

    def put(value: str) -> None:
        monkeypatch.setattr(doctor, "entry_points", lambda group: [EntryPoint("x", value, group)])

    put(f"{__name__}:check")
    return put


def test_each_finding_has_its_next_step(peltier, announce) -> None:
    """One line each in a pipe; what is slow does not fail the command."""
    outcome = peltier("doctor", "--store", "here")
    lines = outcome.out.splitlines()
    assert (outcome.status, outcome.err) == (0, "")
    assert lines[0] == "slow    disk       here is slow -> buy [another]"
    assert "is ready: peltier 0.1.0, minilm in float32 on cpu (linear: native), 3 adapters" in lines[1]
    assert lines[-1] == "0 broken, 1 slow"
    document = json.loads(peltier("doctor", "--store", "here", "--json").out)
    assert (document["broken"], document["slow"]) == (0, 1)
    assert document["findings"][0]["next_step"] == "buy [another]"


def test_a_client_without_a_servers_packages(peltier, announce) -> None:
    """Says what it cannot check, and how to install it."""
    announce("not_installed.anywhere:check")
    outcome = peltier("doctor")
    assert outcome.status == 0
    assert "not_installed is not installed, so this machine cannot serve -> to serve from it: pip" in outcome.out


def test_a_named_server_must_answer(peltier, announce) -> None:
    """Else the command fails."""
    outcome = peltier("doctor", "--store", "x", "--url", "http://127.0.0.1:1")
    assert outcome.status == 1
    assert "broken  server     no connection to http://127.0.0.1:1: " in outcome.out
    assert "start a server with `peltier serve`" in outcome.out


def test_the_default_address_may_have_no_server() -> None:
    """That is a note."""
    (finding,) = check_server("http://127.0.0.1:1", None, named=False)
    assert finding.level == "note"


def test_a_server_that_is_not_ready(peltier, announce, server, answer, refuse):
    """Is broken, for its reason; one that refuses the key is a note with the next step."""
    server.planned.append(refuse(503, "not_ready", "the runner is stuck"))
    outcome = peltier("doctor", "--store", "x")
    assert (outcome.status, "is not ready: the runner is stuck" in outcome.out) == (1, True)
    server.planned.extend([answer(200, {"status": "ready"}), refuse(401, "unauthorized", "no such key")])
    assert "no such key -> check PELTIER_API_KEY or --api-key" in peltier("doctor", "--store", "x").out
