"""A known outage is one record a minute, however many requests fail."""

import logging
from collections.abc import Iterator

import pytest
from peltier_server.logs import outages
from peltier_server.logs.outages import OutageFilter
from peltier_store.blobs.blobs import BlobError, BlobNotFound
from peltier_store.registry.errors import RegistryConflict, RegistryError


class Written(logging.Handler):
    """The records that are written, with the number of those left out before each."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(OutageFilter())
        self.messages = list[tuple[str, int]]()

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, int] = getattr(record, "fields", {})
        self.messages.append((record.getMessage(), fields.get("left_out", 0)))


@pytest.fixture
def written() -> Iterator[Written]:
    handler, root = Written(), logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)


def test_an_outage_is_one_record_a_minute(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one counts those between. Other outages, and errors about one record, have records of their own."""
    now, logger = [1000.0], logging.getLogger("somewhere")
    monkeypatch.setattr(outages.time, "monotonic", lambda: now[0])
    for _ in range(1000):
        logger.warning("this fails: %s", RegistryError("no answer"))
        logger.error("that fails: %s", BlobError("no bucket"))
        logger.warning("a provider", extra={"outage": "identity provider"})
    for error in (RegistryConflict("a version"), BlobNotFound("one blob"), ValueError("a fault")):
        for _ in range(2):
            logger.error("a request failed", exc_info=error)
    now[0] += 60
    logger.error("this fails: %s", RegistryError("no answer"))
    once = ["this fails: no answer", "that fails: no bucket", "a provider"]
    assert written.messages == [
        *((message, 0) for message in once),
        *[("a request failed", 0)] * 6,
        ("this fails: no answer", 999),
    ]


def test_an_outage_that_begins_again_is_logged_at_once(written: Written) -> None:
    """After the record that says that the last one is over."""
    logger = logging.getLogger("peltier_server.somewhere")
    logger.setLevel(logging.INFO)
    for _ in range(2):
        logger.warning("no answer: %s", RegistryError("x"))
        logger.info("it answers again", extra={"outage": "registry"})
    assert [message for message, _ in written.messages] == ["no answer: x", "it answers again"] * 2


def test_libraries_that_lost_a_server_are_heard_once(written: Written) -> None:
    for name in ("opentelemetry.exporter.otlp", "sqlalchemy.pool.impl"):
        for _ in range(100):
            logging.getLogger(name).error("Failed to export")
    assert written.messages == [("Failed to export", 0)] * 2


async def test_requests_that_fail_by_the_store_have_no_tracebacks(running, written, monkeypatch):
    async def fail(*_: object, **__: object) -> None:
        raise RegistryError("the registry failed: connection refused")

    monkeypatch.setattr(running.service.store.registry, "create_tenant", fail)
    for _ in range(100):
        answer = await running.client.post("/v1/tenants", json={"name": "another"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    ((message, _),) = written.messages
    assert message.endswith("the registry failed: connection refused")
    assert "\n" not in message
