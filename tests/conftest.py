"""Settings and fixtures of every suite. Those of backbones and artifacts have files of their own."""

import gc
import os
import signal
import uuid
from collections.abc import Generator, Iterator
from functools import cache
from urllib.parse import urlsplit

import httpcore2
import pytest

from tests.support import s3_server
from tests.support.postgres_server import PostgresServer, run_postgres

pytest_plugins = ("tests.support.core_alone", "tests.support.skips", "tests.support.tiers", "tests.support.workers")
_FIXTURES = ("tests.support.checkpoints", "tests.support.backbones", "tests.support.artifacts")

os.environ["OMP_NUM_THREADS"] = "1"  # the default of commands, in this process and in others
# A shell's background job ignores Ctrl-C, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Loads the fixtures, except in the process that only distributes tests to others, which would wait for torch."""
    if config.getoption("dist", "no") != "no":
        return
    import torch

    torch.set_num_threads(1)
    for name in _FIXTURES:
        config.pluginmanager.import_plugin(name)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """No garbage is collected meanwhile, because nearly all that a collection imports and makes stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _modules_stay() -> None:
    """Freezes imported modules, because every training ends with a full garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _certificates_are_read_once() -> Iterator[None]:
    """Every new client would read the machine's certificates, 20 ms or more, which most tests of a server wait for."""
    with pytest.MonkeyPatch.context() as patch:
        # The lowest version that pyproject.toml accepts may read them elsewhere.
        if read := getattr(httpcore2, "default_ssl_context", None):
            patch.setattr(httpcore2, "default_ssl_context", cache(read))
        yield


@pytest.fixture(scope="session")
def s3_buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a bucket on a real S3 server: the one that S3_TEST_URL names, or else moto's."""
    if "S3_TEST_URL" in os.environ:
        yield os.environ["S3_TEST_URL"]
        return
    directory = tmp_path_factory.mktemp("s3")
    with s3_server.start(s3_server.moto(directory), directory / "log") as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield server.url("")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server; fails where PostgreSQL is not installed."""
    with run_postgres() as server:
        yield server


@pytest.fixture
def s3_store(s3_buckets: str) -> str:
    """The URL of an empty blob store on that server."""
    url = urlsplit(s3_buckets)
    return url._replace(path=f"{url.path.rstrip('/')}/{uuid.uuid4().hex}").geturl()
