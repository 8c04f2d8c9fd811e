"""The log on stderr, without keys: one record a line, as text for people or as JSON for programs."""

import json
import logging
import re
import sys
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from opentelemetry.trace import format_span_id, format_trace_id

from peltier_server.auth.credentials import KEY_PATTERN
from peltier_server.context import current_context
from peltier_server.logs.access_log import enable_access_log
from peltier_server.logs.outages import OutageFilter
from peltier_server.settings import AuthSettings, LogSettings

logger = logging.getLogger(__name__)

# Records of these loggers below WARNING repeat what this server logs itself.
_NOISY = ("uvicorn.error", "alembic")
# uvicorn's record of an answer that `RequestMiddleware` left incomplete, after logging the reason.
_INCOMPLETE = "ASGI callable returned without completing response."
# Characters that can end a line, move a terminal's cursor or change the direction of writing, and lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN = re.compile(r"[^\s\"=\\]+")
_HIDDEN = "[key]"


def request_fields() -> dict[str, str | int]:
    """The id of the current request, the tenant of its caller and the adapter version that it asks for, as far as
    they are known, and the ids of its trace and span if the server traces. An adapter of another tenant is
    `tenant:name`. The result is empty outside of requests.
    """
    context = current_context.get()
    if context is None:
        return {}
    fields: dict[str, str | int] = {"request_id": context.request_id}
    if context.known_caller is not None:
        fields["tenant"] = context.tenant
    if context.version is not None:
        tenant, adapter, number = context.version
        fields["adapter"] = adapter if tenant == context.tenant else f"{tenant}:{adapter}"
        fields["version"] = int(number)
    if context.trace is not None:
        span = context.trace.span_context
        fields["trace_id"], fields["span_id"] = format_trace_id(span.trace_id), format_span_id(span.span_id)
    return fields


class Redactor:
    """Removes keys from text: everything that has the form of a key, and each of `secrets`."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._keys = re.compile("|".join([KEY_PATTERN, *(re.escape(secret) for secret in secrets)]))

    def redact(self, text: str) -> str:
        """`text` with `[key]` instead of each key."""
        return self._keys.sub(_HIDDEN, text)


class LineFormatter(logging.Formatter):
    """The common base of both formats: the parts of a record, without keys."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redact = redactor.redact

    def _time(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _message(self, record: logging.LogRecord) -> str:
        return self._redact(record.getMessage())

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """The fields of the current request, and those that the record has from `extra={"fields": {…}}`."""
        given: Mapping[str, Any] = getattr(record, "fields", {})
        fields = {**request_fields(), **given}
        return {name: self._redact(value) if isinstance(value, str) else value for name, value in fields.items()}

    def _traceback(self, record: logging.LogRecord) -> str:
        parts = [self.formatException(record.exc_info)] if record.exc_info else []
        parts += [self.formatStack(record.stack_info)] if record.stack_info else []
        return self._redact("\n".join(parts))


class JsonFormatter(LineFormatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, `traceback` if there is one, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as ASCII text. Line ends in values are escaped."""
        line = {
            "time": self._time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": self._message(record),
        }
        traceback = self._traceback(record)
        if traceback:
            line["traceback"] = traceback
        fields = {name: value for name, value in self._fields(record).items() if name not in line}
        return json.dumps(line | fields, default=str)


class TextFormatter(LineFormatter):
    """Time, level, logger, message and `name=value` fields on one line. A traceback follows, indented, so that every
    line that begins with a time begins a record.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as text. Characters that could break its line or change its display are escaped."""
        fields = "".join(f" {name}={_quoted(value)}" for name, value in self._fields(record).items())
        head = f"{self._time(record)} {record.levelname} {record.name}: {self._message(record)}{fields}"
        traceback = self._traceback(record)
        rest = (f"\n    {_escaped(line)}" for line in traceback.split("\n") if traceback)
        return _escaped(head) + "".join(rest)


def configure_logging(logs: LogSettings, auth: AuthSettings) -> None:
    """Makes this process log to stderr as `logs` says, including warnings and uncaught exceptions, without the secrets
    of `auth`."""
    redactor = Redactor(auth.secrets)
    handler = logging.StreamHandler()
    handler.addFilter(OutageFilter())
    handler.setFormatter(JsonFormatter(redactor) if logs.log_format == "json" else TextFormatter(redactor))
    level = getattr(logging, logs.log_level.upper())
    # Debug records of other libraries contain whole SQL statements and are never useful here.
    logging.basicConfig(level=max(level, logging.INFO), handlers=[handler], force=True)
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(logging.INFO if level == logging.DEBUG else max(level, logging.WARNING))
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    if logs.access_log:
        enable_access_log()
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_of_thread


def _is_news(record: logging.LogRecord) -> bool:
    return record.msg != _INCOMPLETE


def _log_uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    logger.critical("the process failed", exc_info=(kind, error, traceback))


def _log_uncaught_of_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None:
        name = "" if args.thread is None else args.thread.name
        logger.critical("thread %s failed", name, exc_info=(args.exc_type, args.exc_value, args.exc_traceback))


def _escaped(text: str) -> str:
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _quoted(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
