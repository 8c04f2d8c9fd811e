"""The small servers with small limits that all probes share."""

import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2
import pytest
from peltier_backbone.backbone import Backbone
from peltier_client.protocol.administration import TenantQuotas
from peltier_server.http.connection import LimitedConnection
from peltier_server.service import Service

from tests.server.attacker import listen as hear
from tests.server.conftest import Listen, Listening, add_tenant

KEY = "an-admin-key-of-the-tests"
STALL_SECONDS = 0.4
TEXT = "a good film"
_SETTINGS = {
    "admin_key": KEY,
    "max_inputs": 8,
    "max_body_bytes": 128 * 1024,
    "max_artifact_bytes": 5 * 1024 * 1024,
    "max_file_bytes": 2 * 1024 * 1024,
    "max_file_rows": 8,
    "max_batch_lines": 6,
    "max_batch_result_bytes": 100,
    "max_queue_tokens": 64,
    "max_batch_tokens": 12,
    "max_batch_rows": 3,
    "max_decode_rows": 2,
    "max_new_tokens": 10,
    "device_bytes": 100_000,
    "host_bytes": 100_000,
    "undelete_seconds": 0,
    "max_metric_versions": 1,
}


@dataclass(frozen=True)
class Small:
    """A server with small limits and the public task `demo`, over a real socket, as one tenant meets it. `name` is
    that of a tenant that `tenant` has made."""

    listening: Listening
    client: httpx2.Client
    task: str = "demo"
    name: str = ""

    @property
    def service(self) -> Service:
        return self.listening.service

    def upload(self, data: bytes, **form: str) -> httpx2.Response:
        return self.client.post("/v1/adapters", files={"file": ("a.safetensors", data)}, data=form)

    def predict(self, inputs: object = TEXT, **parameters: object) -> httpx2.Response:
        return self.client.post(f"/v1/tasks/{self.task}/predict", json={"inputs": inputs, "parameters": parameters})

    def connect(self) -> socket.socket:
        address = httpx2.URL(self.listening.url)
        return socket.create_connection((address.host, address.port or 0), timeout=60)

    def hears(self, *pieces: bytes, once_closed: bool = False) -> bytes:
        """What a connection that sends these hears until the server closes it, the first piece at once; it may begin to
        listen once the server has closed it."""
        closed, lost, address = threading.Event(), LimitedConnection.connection_lost, list[object]()

        def notice(connection: LimitedConnection, error: Exception | None) -> None:
            lost(connection, error)
            if connection.client in address:
                closed.set()

        with ExitStack() as opened:
            opened.enter_context(pytest.MonkeyPatch.context()).setattr(LimitedConnection, "connection_lost", notice)
            with self.standing_still():
                connection = opened.enter_context(self.connect())
                address.append(connection.getsockname())
                connection.sendall(pieces[0])
            with suppress(ConnectionError):
                for piece in pieces[1:]:
                    connection.sendall(piece)
            assert not once_closed or closed.wait(60)
            return hear(connection)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """The server's event loop waits for the end of the block, so that it finds at once what the block has sent."""
        begun, over = threading.Event(), threading.Event()

        def wait() -> None:
            begun.set()
            over.wait(60)

        self.listening.loop.call_soon_threadsafe(wait)
        assert begun.wait(60)
        try:
            yield
        finally:
            over.set()

    def version(self, number: int) -> "Small":
        return replace(self, task=f"{self.task}@{number}")

    def metrics(self, name: str, **labels: str) -> list[float]:
        page = self.client.get("/metrics").text
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        lines = [line for line in page.splitlines() if line.startswith(f"{name}{{")]
        return [float(line.split()[-1]) for line in lines if all(one in line for one in wanted)]

    def run(self, work: Coroutine[Any, Any, object]) -> None:
        self.listening.run(work)

    @contextmanager
    def tenant(self, **quotas: Any) -> Iterator["Small"]:
        """This server as one more tenant with these quotas meets it."""
        scopes = ["predict", "publish", "train"]
        name, key = self.listening.run(add_tenant(self.listening.app, scopes, TenantQuotas(**quotas)))
        with _client(self.listening, key) as client:
            yield Small(self.listening, client, "default:demo", name)

    @contextmanager
    def held(self) -> Iterator[Callable[..., Any]]:
        """Rows wait in the queue until the block ends. `send(call, …)` has a request made beside the block."""
        released, holding = threading.Event(), threading.Event()
        batcher = self.service.batcher
        take, take_in_background = batcher.next, batcher.next_background

        def wait(**options: Any) -> Any:
            holding.set()
            released.wait(60)
            return take(**options)

        def wait_in_background() -> Any:
            released.wait(60)
            return take_in_background()

        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor() as threads:
            patch.setattr(batcher, "next", wait)
            patch.setattr(batcher, "next_background", wait_in_background)
            try:
                # A runner that already waits for rows gets one, so that it comes back for the next.
                self.predict("bad").raise_for_status()
                holding.wait(60)
                yield threads.submit
            finally:
                released.set()


class Servers:
    """Starts each of them when the first row asks for it."""

    def __init__(self, listen: Listen, backbones: dict[str, Backbone], make_artifact: Callable[..., bytes]) -> None:
        self.make_artifact = make_artifact
        self.backbones = backbones
        self._listen = listen
        self._open = ExitStack()

    def close(self) -> None:
        self._open.close()

    @cached_property
    def bert(self) -> Small:
        return self._open.enter_context(self.start("bert"))

    @cached_property
    def t5(self) -> Small:
        return self._open.enter_context(self.start("t5", task_type="text2text", max_queue_tokens=10_000))

    @cached_property
    def wide(self) -> Small:
        """Over an encoder, with room for many inputs of one request but not for many windows."""
        return self._open.enter_context(self.start("bert", max_inputs=1000, max_queue_tokens=4096, max_windows=3))

    @cached_property
    def terse(self) -> Small:
        return self._open.enter_context(self.start("bert", max_answer_bytes=1500, max_queue_tokens=4096))

    @cached_property
    def hasty(self) -> Small:
        """Over an encoder, without a task: one that waits for nobody."""
        return self._open.enter_context(self._start_empty("bert", stall_seconds=STALL_SECONDS, keep_alive_seconds=1))

    @contextmanager
    def start(self, family: str, *, task_type: str = "classification", **settings: object) -> Iterator[Small]:
        """One more, for a row that needs one of its own."""
        with self._start_empty(family, **settings) as small:
            artifact = self.make_artifact(self.backbones[family], "bitfit", task_type=task_type)
            small.upload(artifact).raise_for_status()
            small.client.patch("/v1/adapters/demo", json={"public": True}).raise_for_status()
            yield small

    @contextmanager
    def _start_empty(self, family: str, **settings: object) -> Iterator[Small]:
        backbone = Path(self.backbones[family].name)
        with (
            self._listen(backbone=backbone, **{**_SETTINGS, **settings}) as listening,
            _client(listening, KEY) as client,
        ):
            yield Small(listening, client)


def _client(listening: Listening, key: str) -> httpx2.Client:
    return httpx2.Client(base_url=listening.url, headers={"authorization": f"Bearer {key}"}, timeout=60)
