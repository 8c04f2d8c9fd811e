"""The count of unread bytes of answers, over real sockets."""

import random
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import httpx2
import pytest
from peltier_backbone.backbone import Backbone
from peltier_server.auth.keyring import LOCAL
from peltier_server.context import RequestContext, attach_context
from peltier_server.fairness.shared_bound import Held, SharedBound
from peltier_server.http.incoming import Incoming
from peltier_server.http.lifecycle import Lifecycle
from peltier_server.http.outgoing import PIECE_BYTES, Outgoing
from peltier_server.inference import predictor
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Scope

from tests.server.attacker import post
from tests.server.conftest import Listen, Listening

OPERATOR = "plt_of-the-operator"
LABELS = [f"{number:x}" for number in range(4096)]
# Some six megabytes, more than the sockets of both sides keep.
LARGE = {"inputs": ["a good film"] * 50, "parameters": {"top_k": 4096}}
MIB = 2**20
PREDICT = "/v1/tasks/default:many/predict"


@dataclass(frozen=True)
class Crowd:
    """A server that has 14 MiB for answers, a public task of 4,096 labels, and the keys of tenants a and b."""

    listening: Listening
    keys: dict[str, str]

    @property
    def bound(self) -> SharedBound:
        bound: SharedBound = self.listening.app.state.preparation.answer_bytes
        return bound

    def ask(self, tenant: str, method: str, path: str, body: object = None) -> httpx2.Response:
        headers = {"authorization": f"Bearer {self.keys[tenant]}"}
        return httpx2.request(method, f"{self.listening.url}{path}", json=body, headers=headers, timeout=60)

    @contextmanager
    def reader(self, tenant: str) -> Iterator[socket.socket]:
        """A caller of the large answer who has taken its beginning, and takes no more."""
        url, body = httpx2.URL(self.listening.url), httpx2.Request("POST", "http://a", json=LARGE).content
        with socket.socket() as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            caller.settimeout(60)
            caller.connect((url.host, url.port))
            caller.sendall(post(PREDICT, body, f"authorization: Bearer {self.keys[tenant]}"))
            head = caller.recv(1024)
            assert head.startswith(b"HTTP/1.1 200")
            length = re.search(rb"content-length: (\d+)", head)
            assert length is not None
            assert self.bound.total == int(length[1])  # what the caller has is counted until the whole has left
            yield caller

    def wait_until_free(self, num_bytes: int = 0) -> None:
        deadline = time.monotonic() + 60
        while self.bound.total > num_bytes:
            assert time.monotonic() < deadline
            time.sleep(0.005)


@pytest.fixture(scope="module")
def crowd(listen: Listen, bert: Backbone, make_artifact: Callable[..., bytes]) -> Iterator[Crowd]:
    limits = {"max_answer_bytes": 7 * MIB, "max_pending_answer_bytes": 14 * MIB, "max_adapter_cost": 10}
    with listen(admin_key=OPERATOR, **limits) as listening:
        crowd = Crowd(listening, {"operator": OPERATOR})
        files = {"file": make_artifact(bert, "bitfit", name="many", labels=LABELS)}
        headers = {"authorization": f"Bearer {OPERATOR}"}
        uploaded = httpx2.post(f"{listening.url}/v1/adapters", files=files, headers=headers, timeout=60)
        assert uploaded.status_code == 201, uploaded.text
        assert crowd.ask("operator", "PATCH", "/v1/adapters/many", {"public": True}).status_code == 200
        for tenant in ("a", "b"):
            crowd.ask("operator", "POST", "/v1/tenants", {"name": tenant})
            made = crowd.ask("operator", "POST", "/v1/keys", {"tenant": tenant, "scopes": ["predict"]})
            crowd.keys[tenant] = made.json()["key"]
        yield crowd


def test_an_answer_that_nobody_takes_counts_until_its_reader_leaves(crowd, monkeypatch):
    """Meanwhile its tenant's next large request is refused before anything is computed, small ones and other tenants
    are answered."""
    with crowd.reader("a"):
        with monkeypatch.context() as patch:
            patch.setattr(predictor, "encode_inputs", None)
            refused = crowd.ask("a", "POST", PREDICT, LARGE)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], refused.headers["retry-after"]) == (503, "queue_full", "1")
        assert re.fullmatch(r"\d+ bytes of answers of tenant 'a' are in progress; .+", error["message"])
        assert crowd.ask("a", "POST", PREDICT, {"inputs": "a good film"}).status_code == 200
        other = crowd.ask("b", "POST", PREDICT, LARGE)
        assert (other.status_code, len(other.json()["predictions"])) == (200, 50)
    crowd.wait_until_free()


def test_a_reader_who_takes_all_frees_its_share(crowd: Crowd) -> None:
    """Slowly as it may have come, the answer is whole, and the connection serves the next request."""
    with crowd.reader("a") as caller:
        last = b""
        while not last.endswith(b"]}"):
            last = caller.recv(MIB)
        crowd.wait_until_free()
        caller.sendall(f"GET /info HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {crowd.keys['a']}\r\n\r\n".encode())
        assert caller.recv(1024).startswith(b"HTTP/1.1 200")


def test_without_room_large_answers_of_every_kind_are_refused(crowd: Crowd) -> None:
    """Predictions, each item of a mixed request by itself, and downloads; nothing is left of what was refused."""
    small, large = ({"task": "many", "input": "a good film", "parameters": {"top_k": k}} for k in (1, 4096))
    with ExitStack() as held:
        for tenant in ("x", "y", "z"):
            held.enter_context(crowd.bound.hold(tenant, 3 * (14 * MIB - crowd.bound.total) // 4))
        taken = crowd.bound.total
        for method, path, body in (("POST", PREDICT, LARGE), ("GET", "/v1/adapters/many/versions/1/artifact", None)):
            refused = crowd.ask("operator", method, path, body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "queue_full")
        mixed = crowd.ask("operator", "POST", "/v1/predict", {"requests": [small, *[large] * 40]})
        results = mixed.json()["results"]
        assert "predictions" in results[0]
        assert results[-1]["error"]["code"] == "queue_full"
        crowd.wait_until_free(taken)
    assert len(crowd.ask("operator", "GET", "/v1/adapters/many/versions/1/artifact").content) > 4 * PIECE_BYTES
    crowd.wait_until_free()


@pytest.mark.parametrize("num_bytes", [100, PIECE_BYTES, PIECE_BYTES + 1, 10 * PIECE_BYTES])
async def test_any_large_answer_is_counted_and_sent_in_pieces(num_bytes: int) -> None:
    """The same bytes, even of one that is larger than all may have; where there is no room, it is replaced by a 503."""
    bound, body = SharedBound(4 * PIECE_BYTES, "bytes of answers"), random.Random(0).randbytes(num_bytes)
    assert await _sent(Response(body), bound) == (200, body)
    with bound.hold("x", 3 * PIECE_BYTES):
        status, sent = await _sent(Response(body), bound)
        assert (status, sent == body) == ((503, False) if num_bytes > PIECE_BYTES else (200, True))
    assert bound.total == 0


def test_no_cache_keeps_an_answer(crowd: Crowd) -> None:
    """Neither of a list or a refusal, unless the route says how long an answer stays true."""
    for path in ("/info", "/v1/adapters", "/v1/adapters/none", "/nothing"):
        assert crowd.ask("a", "GET", path).headers.get_list("cache-control") == ["no-store"], path
    console = crowd.ask("a", "GET", "/console/").headers.get_list("cache-control")
    assert len(console) == 1


async def _sent(app: ASGIApp, bound: SharedBound) -> tuple[int, bytes]:
    messages: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("no body is asked for")

    async def send(message: Message) -> None:
        assert len(message.get("body", b"")) <= PIECE_BYTES
        messages.append(message)

    scope: Scope = {"type": "http", "method": "GET", "path": "/", "state": {}}
    with Held(bound, LOCAL.tenant) as held:
        context = RequestContext("1", known_caller=LOCAL, answer_bytes=held)
        attach_context(scope, context)
        outgoing = Outgoing(context, Lifecycle(), Incoming(context, receive, 1.0, is_whole=True), send)
        await app(scope, receive, outgoing.send)
        await outgoing.end(scope, receive)
    start, *pieces = messages
    assert [piece.get("more_body", False) for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    return start["status"], b"".join(piece["body"] for piece in pieces)
