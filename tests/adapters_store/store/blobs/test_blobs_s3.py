"""Faults that only a bucket has: it can be at another address, down, silent, or ignore create-only."""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from obstore.exceptions import AlreadyExistsError
from peltier_store.blobs.blobs import BlobError, BlobNotFound, Blobs, BlobStoreGone, digest_of
from peltier_store.blobs.location import locate

from tests.support import s3_server
from tests.support.s3_server import S3Server

DATA = b"the bytes of an adapter"
DIGEST = digest_of(DATA)
CALLS: dict[str, Callable[[Blobs], Awaitable[object]]] = {
    "put": lambda blobs: blobs.put(DATA),
    "get": lambda blobs: blobs.get(DIGEST),
    "delete": lambda blobs: blobs.delete(DIGEST),
    "list": lambda blobs: anext(blobs.entries()),
    "claim": lambda blobs: blobs.owner.claim("a"),
}


@pytest.fixture
def server(tmp_path: Path, s3_store: str) -> Iterator[S3Server]:
    """A server of the test's own, which it may stop. `s3_store` is here for its credentials."""
    with s3_server.start(s3_server.moto(tmp_path), tmp_path / "log") as server:
        yield server


@pytest.fixture(scope="module")
def orphaned(tmp_path_factory: pytest.TempPathFactory, s3_buckets: str) -> Blobs:
    """A store with a blob, whose server has died. `s3_buckets` is here for its credentials."""
    directory = tmp_path_factory.mktemp("orphaned")
    with s3_server.start(s3_server.moto(directory), directory / "log") as server:
        blobs = Blobs.open(server.url("a"))
        asyncio.run(blobs.put(DATA))
    return blobs


class Careless(BaseHTTPRequestHandler):
    """Answers that it has stored whatever is sent, as a server does that ignores `If-None-Match`."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("etag", '"0"')
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@contextmanager
def careless() -> Iterator[str]:
    """The URL of a store on a server that ignores create-only."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Careless) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            endpoint = f"http://127.0.0.1:{server.server_port}"
            yield s3_server.with_options("s3://peltier-tests/a", endpoint=endpoint, allow_http="true")
        finally:
            server.shutdown()
            thread.join()


def test_of_many_writers_of_one_name_one_wins(s3_store: str) -> None:
    """Create-only holds for 64 concurrent writers; the other tests rely on it."""
    store = locate(s3_store).store
    start = threading.Barrier(16)

    def create(number: int) -> int | None:
        start.wait()
        try:
            store.put("raced", b"%d" % number, mode="create")
        except AlreadyExistsError:
            return None
        return number

    with ThreadPoolExecutor(16) as threads:
        (winner,) = (number for number in threads.map(create, range(64)) if number is not None)
    assert bytes(store.get("raced").bytes()) == b"%d" % winner


def test_a_server_that_ignores_create_only_is_refused(s3_store: str) -> None:
    """The probe at start-up detects a server that overwrites an existing object."""
    refused = pytest.raises(BlobError, match="'s3://peltier-tests/a' ignores create-only")
    with careless() as url, refused:
        Blobs.open(url)


@pytest.mark.slow  # a program; above, a handler that does the same
def test_rclone_is_refused(tmp_path: Path, s3_store: str) -> None:
    """It ignores create-only, at least as it serves a directory."""
    (tmp_path / "served").mkdir()
    refused = pytest.raises(BlobError, match="'s3://peltier-tests/a' ignores create-only")
    with s3_server.start(s3_server.rclone(tmp_path / "served"), tmp_path / "log") as server, refused:
        Blobs.open(server.url("a"))


def test_a_bucket_that_does_not_exist_is_refused(s3_store: str) -> None:
    """The error contains the service's own code; Peltier creates no buckets."""
    url = urlsplit(s3_store)._replace(netloc="another", path="/a").geturl()
    with pytest.raises(
        BlobError, match=r"^the blob store 's3://another/a' cannot be opened: [^\n]*NoSuchBucket[^\n]*$"
    ):
        Blobs.open(url)


def test_missing_credentials_are_one_sentence(s3_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    rule = rf"^the blob store {locate(s3_store).name!r} cannot be opened: [^\n]+$"
    with pytest.raises(BlobError, match=rule):
        Blobs.open(s3_store)


@pytest.mark.parametrize("name", CALLS)
async def test_a_server_that_is_gone_is_one_sentence_soon(orphaned: Blobs, name: str) -> None:
    """Every call on a store whose server has died fails soon and names its blob."""
    with pytest.raises(BlobError, match=r"^[^\n]+ cannot be (stored|read|deleted|listed): [^\n]+$") as caught:
        await CALLS[name](orphaned)
    assert not isinstance(caught.value, BlobNotFound)


@pytest.mark.slow
async def test_a_server_that_is_silent_never_hangs_a_caller(server: S3Server) -> None:
    """Each call times out while the server is stopped, and works again after it continues."""
    await Blobs.open(server.url("a")).put(DATA)
    blobs = Blobs(locate(server.url("a", timeout=1)))
    server.process.send_signal(signal.SIGSTOP)
    failures = await asyncio.gather(*(call(blobs) for call in CALLS.values()), return_exceptions=True)
    server.process.send_signal(signal.SIGCONT)
    assert [type(failure) for failure in failures] == [BlobError] * len(CALLS)
    # Not each call on a busy machine is answered within the second.
    assert await answered(lambda: blobs.put(DATA)) == DIGEST
    assert await answered(lambda: blobs.get(DIGEST)) == DATA


async def answered(call: Callable[[], Awaitable[object]]) -> object:
    """The result of the first call that does not fail."""
    async with asyncio.timeout(120):
        while True:
            with suppress(BlobError):
                return await call()


async def test_a_bucket_that_was_emptied_takes_nothing(s3_store: str) -> None:
    """The missing owner shows that the store was replaced."""
    blobs = Blobs.open(s3_store)
    await blobs.owner.claim("somebody")
    await blobs.put(DATA)
    store = locate(s3_store).store
    for key in ("owner", f"sha256/{DIGEST.removeprefix('sha256:')}"):
        store.delete(key)
    for call in (blobs.put(b"others"), blobs.get(DIGEST), blobs.owner.claim("somebody"), blobs.owner.require_present()):
        with pytest.raises(BlobStoreGone, match="it has no owner, and belonged to the registry somebody"):
            await call
    await Blobs.open(s3_store).owner.hand_over("another")
    with pytest.raises(BlobStoreGone, match="belongs to the registry another, and belonged to the registry somebody"):
        await blobs.put(DATA)
    await Blobs.open(s3_store).owner.hand_over("somebody")
    await blobs.put(DATA)
