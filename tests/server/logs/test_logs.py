"""The format of the log, for any values."""

import json
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_server.logs import outages
from peltier_server.logs.access_log import logger as access_logger
from peltier_server.logs.logs import JsonFormatter, Redactor, TextFormatter, configure_logging
from peltier_server.logs.outages import OutageFilter
from peltier_server.settings import AuthSettings, LogSettings
from peltier_store.blobs.blobs import BlobError, BlobNotFound
from peltier_store.registry.errors import RegistryConflict, RegistryError

from tests.server.conftest import Running

KEY = f"plt_abcdefgh_{'x' * 43}"
ADMIN = 'the operator\'s "own"'
REDACTOR = Redactor([ADMIN])


def record(message="m", fields=None, error=None):
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("somewhere", logging.INFO, "f.py", 1, "%s", (message,), exc_info)
    made.created = 0.25
    if fields is not None:
        made.fields = fields
    return made


def caught(message: str) -> Exception:
    try:
        raise ValueError(message)
    except ValueError as error:
        return error


def test_a_line_of_json_holds_the_whole_record() -> None:
    line = json.loads(JsonFormatter(REDACTOR).format(record("a b", {"status": 200}, caught("no"))))
    assert line.pop("traceback").splitlines()[-1] == "ValueError: no"
    assert line == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "INFO",
        "logger": "somewhere",
        "message": "a b",
        "status": 200,
    }


def test_fields_do_not_take_the_place_of_the_records_own() -> None:
    line = json.loads(JsonFormatter(REDACTOR).format(record("a", {"level": "none", "message": "none"})))
    assert (line["level"], line["message"]) == ("INFO", "a")


def test_a_line_of_text_is_for_people() -> None:
    """Fields follow the message, quoted where they would not be told apart; tracebacks are indented."""
    text = TextFormatter(REDACTOR).format(record("a b", {"path": "/x y=z", "status": 200}, caught("no")))
    first, *rest = text.splitlines()
    assert first == '1970-01-01T00:00:00.250Z INFO somewhere: a b path="/x y=z" status=200'
    assert rest[-1] == "    ValueError: no"
    assert all(line.startswith("    ") for line in rest)


@given(message=st.text(), value=st.text(), error=st.text())
def test_nobody_forges_a_line(message: str, value: str, error: str) -> None:
    """Whatever characters a value has: JSON stays one line, and in text what is no record is indented. No character
    moves a terminal's cursor."""
    made = record(
        f"{message}\n2026", {"value": f"{value}\r\u2028\x1b[2J"}, caught(f"{error}\n2026-01-01T00:00:00.000Z")
    )
    line = JsonFormatter(REDACTOR).format(made)
    assert len(line.splitlines()) == 1
    assert line.isascii()
    assert json.loads(line)["message"] == f"{message}\n2026"
    first, *rest = TextFormatter(REDACTOR).format(made).split("\n")
    assert all(each.startswith("    ") for each in rest)
    assert not any(character < " " or "\x7f" <= character <= "\x9f" for each in (first, *rest) for character in each)


@pytest.mark.parametrize("kind", [JsonFormatter, TextFormatter])
def test_keys_are_not_written(kind: Callable[[Redactor], logging.Formatter]) -> None:
    """Neither what has the form of a key nor those of the settings, wherever they stand."""
    text = kind(REDACTOR).format(record(f"a {KEY}", {"path": f"/{KEY}/{ADMIN}"}, caught(ADMIN)))
    assert "xxx" not in text
    assert "operator" not in text
    assert text.count("[key]") >= 4


async def test_records_of_a_request_say_which(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, object]] = []
    handler = logging.Handler()
    handler.emit = lambda made: lines.append(json.loads(JsonFormatter(REDACTOR).format(made)))  # type: ignore[method-assign]
    logging.getLogger("peltier_server").addHandler(handler)
    try:
        monkeypatch.setattr(running.service.catalog, "get", lambda tenant, name: 1 / 0)
        await running.client.get("/v1/adapters/a", headers={"x-request-id": "first"})
        logging.getLogger("peltier_server").warning("between")
    finally:
        logging.getLogger("peltier_server").removeHandler(handler)
    failed, between = lines
    assert (failed["request_id"], failed["tenant"]) == ("first", "default")
    assert "ZeroDivisionError" in str(failed["traceback"])
    assert "request_id" not in between


async def test_the_access_log_has_a_line_for_each_request(serve, bert, make_artifact, caplog):
    """Method, route, path, status, time and size of the answer, with the adapter version in the line."""
    caplog.set_level(logging.INFO, access_logger.name)
    caplog.handler.setFormatter(JsonFormatter(REDACTOR))
    async with serve(access_log=True) as running:
        assert (await running.upload(make_artifact(bert, name="a"))).status_code == 201
        caplog.clear()
        answer = await running.client.post(
            "/v1/tasks/a/predict?token=hidden", json={"inputs": "a gem"}, headers={"x-request-id": "mine"}
        )
        await running.client.get("/v1/" + "x" * 10_000)
    lines = [json.loads(line) for line in caplog.text.splitlines()]
    predicted, unknown = (line for line in lines if line["logger"] == access_logger.name)
    assert predicted.pop("ms") > 0
    assert (
        predicted.items()
        >= {
            "method": "POST",
            "route": "/v1/tasks/{task}/predict",
            "path": "/v1/tasks/a/predict",
            "status": 200,
            "bytes": len(answer.content),
            "request_id": "mine",
            "tenant": "default",
            "adapter": "a",
            "version": 1,
        }.items()
    )
    assert "hidden" not in caplog.text
    assert "gem" not in caplog.text
    assert (unknown["route"], unknown["status"]) == ("none", 404)
    assert len(unknown["path"]) < 300


async def test_without_the_setting_there_is_no_access_log(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await running.client.get("/info")
    assert access_logger.name not in {made.name for made in caplog.records}


@pytest.fixture
def logging_of_ones_own() -> Iterator[None]:
    root, hooks = logging.getLogger(), (sys.excepthook, threading.excepthook)
    handlers, named = root.handlers[:], [root, access_logger, *map(logging.getLogger, ("uvicorn.error", "alembic"))]
    levels = [one.level for one in named]
    root.handlers.clear()
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    sys.excepthook, threading.excepthook = hooks
    for one, level in zip(named, levels, strict=True):
        one.setLevel(level)


@pytest.mark.usefixtures("logging_of_ones_own")
def test_the_level_bounds_everything_but_the_access_log(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogSettings(log_level="warning", log_format="json", access_log=True), AuthSettings())
    logging.getLogger("peltier_server.app").info("quiet")
    logging.getLogger("uvicorn.error").warning("loud")
    access_logger.info("request")
    messages = [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()]
    assert messages == ["loud", "request"]


@pytest.mark.usefixtures("logging_of_ones_own")
def test_what_nobody_catches_is_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogSettings(log_format="json"), AuthSettings())
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("take care", stacklevel=1)
    error = caught("nobody caught it")
    sys.excepthook(type(error), error, error.__traceback__)
    threading.excepthook(
        threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
    )
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["logger"] for line in lines] == ["py.warnings", "peltier_server.logs.logs", "peltier_server.logs.logs"]
    assert "take care" in lines[0]["message"]
    assert all("nobody caught it" in line["traceback"] for line in lines[1:])


@pytest.mark.usefixtures("logging_of_ones_own")
def test_debugging_shows_what_the_http_server_says(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogSettings(log_level="debug"), AuthSettings())
    logging.getLogger("uvicorn.error").info("started")
    assert "INFO uvicorn.error: started\n" in capsys.readouterr().err


# A known outage is one record a minute, however many requests fail.


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
