"""A client that was used before a fork, in real child processes over real sockets."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import PIECES, LittleServer, answer_for, events

# `forked` runs a function in a child and returns what it returns. The process has one thread, unlike a test's.
_PRELUDE = """
import asyncio, json, os, sys
from peltier_client import AsyncClient, Client, PeltierError

URL = sys.argv[1]

def fork(child):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            found = child()
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    return pid, reading

def join(child):
    os.waitpid(child[0], 0)
    with os.fdopen(child[1]) as file:
        return json.load(file)

def text(client, sent):
    return client.predict("e2e", sent)[0].text
"""


@pytest.fixture
def run(server: LittleServer, tmp_path: Path) -> Callable[[str], Any]:
    """Runs a program in a process of its own; returns what it prints as JSON."""

    def run(program: str) -> Any:
        path = tmp_path / "program.py"
        path.write_text(_PRELUDE + program)
        words = [sys.executable, "-W", "error", str(path), server.url]
        ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, "")
        return json.loads(ended.stdout)

    return run


@pytest.fixture
def echoing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts of the server's answers are those of the requests."""
    import tests.client.conftest as little

    plain = little.contract_answer

    def answer(request: little.Received) -> little.Answer:
        found = plain(request)
        if isinstance(found.body, dict) and "predictions" in found.body:
            found.body["predictions"] = [found.body["predictions"][0] | {"text": json.loads(request.body)["inputs"]}]
        return found

    monkeypatch.setattr(little, "contract_answer", answer)


@pytest.mark.usefixtures("echoing")
def test_every_child_gets_the_answers_to_its_own_requests(run: Callable[[str], Any]) -> None:
    """Three children of a process that has open connections, and their parent, which asks at the same time."""
    answers = run("""
client = Client(URL)
text(client, "before")
children = [fork(lambda k=k: [text(client, f"{k} {n}") for n in range(100)]) for k in range(3)]
own = [text(client, f"own {n}") for n in range(100)]
print(json.dumps([own, *map(join, children)]))
client.close()
""")
    assert answers == [[f"{who} {n}" for n in range(100)] for who in ("own", 0, 1, 2)]


@pytest.mark.usefixtures("echoing")
def test_an_asynchronous_client_too(run: Callable[[str], Any]) -> None:
    """Each child asks in an event loop of its own, at once."""
    answers = run("""
client = AsyncClient(URL)

async def ask(who):
    found = await asyncio.gather(*(client.predict("e2e", f"{who} {n}") for n in range(20)))
    return [one[0].text for one in found]

with asyncio.Runner() as runner:
    before = runner.run(ask("before"))
    children = [fork(lambda k=k: asyncio.run(ask(k))) for k in range(3)]
    own = runner.run(ask("own"))
    print(json.dumps([before, own, *map(join, children)]))
    runner.run(client.close())
""")
    assert answers == [[f"{who} {n}" for n in range(20)] for who in ("before", "own", 0, 1, 2)]


@pytest.mark.usefixtures("echoing")
def test_a_child_that_closes_its_client_leaves_the_parents_connections(run, server):
    """The parent's next request goes over the connection that it had before."""
    addresses: list[Any] = []
    plain = server.http.process_request

    def process_request(request, client_address) -> None:
        addresses.append(client_address)
        plain(request, client_address)

    server.http.process_request = process_request  # type: ignore[method-assign]
    answers = run("""
client = Client(URL)
text(client, "before")

def child():
    with client:
        return text(client, "child")

print(json.dumps([join(fork(child)), text(client, "after")]))
client.close()
""")
    assert answers == ["child", "after"]
    assert len(addresses) == 2, "one connection of each process"


def test_a_child_takes_no_piece_of_its_parents_stream(run: Callable[[str], Any], server: LittleServer) -> None:
    """The child is told so, and the parent reads all of it: more than a connection's buffers have at once."""
    pieces = [{"index": 0, "text": f"{number:01000}"} for number in range(4000)]
    bodies = map(json.dumps, (*pieces, answer_for("e2e", 1)))
    server.planned.append(events(*(f"data: {body}" for body in bodies), "data: [DONE]"))
    found = run("""
client = Client(URL)
stream = client.stream("e2e", "text")
first = next(stream)

def child():
    try:
        return "".join(stream)
    except PeltierError as error:
        return [str(error), "".join(client.stream("e2e", "text"))]

print(json.dumps([join(fork(child)), first + "".join(stream)]))
client.close()
""")
    sentence = "the process was forked while the answer arrived, which only the parent can read on"
    assert found[0] == [f"the connection to {server.url} broke: {sentence}", "".join(PIECES)]
    assert found[1] == "".join(str(piece["text"]) for piece in pieces)


def test_a_client_that_was_closed_before_the_fork_stays_closed(run: Callable[[str], Any]) -> None:
    """In the child as in the parent."""
    found = run("""
client = Client(URL)
client.close()
print(json.dumps(join(fork(lambda: text(client, "child")))))
""")
    assert found == "RuntimeError: Cannot send a request, as the client has been closed."


def test_a_given_transport_is_refused_in_a_child(run: Callable[[str], Any]) -> None:
    """At once, also where the client would wait for a server that is away; the parent's connection stays open."""
    sentence = (
        "InvalidInput: the client was given its transport before this process was forked, which would read answers "
        "from the parent's connections: create a client in this process"
    )
    found = run("""
import httpx2

client = Client(URL, transport=httpx2.HTTPTransport())
text(client, "before")

def child():
    with client:
        client.trainings.wait("trn_1")

refused = [join(fork(child)), join(fork(lambda: text(client, "child")))]
client.predict("e2e", "after")

async def asynchronous():
    other = AsyncClient(URL, transport=httpx2.AsyncHTTPTransport())
    await other.health()
    return other

with asyncio.Runner() as runner:
    other = runner.run(asynchronous())
    refused.append(join(fork(lambda: asyncio.run(other.health()))))
    runner.run(other.close())
client.close()
print(json.dumps(refused))
""")
    assert found == [sentence] * 3
