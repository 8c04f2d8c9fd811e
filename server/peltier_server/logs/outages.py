"""A known outage is one record a minute in the log, whoever notices it and however often."""

import logging
import time
from collections.abc import Iterator, Mapping

from peltier_store.blobs.blobs import BlobError, BlobStoreFull, BlobStoreGone
from peltier_store.registry.errors import RegistryError, RegistryFull, RegistryGone

_PAUSE_SECONDS = 60.0
_REGISTRY, _BLOBS = "registry", "blob store"
# Not their subclasses, which are answers about one record or one blob.
_FAILURES: Mapping[type, str] = {
    **dict.fromkeys((RegistryError, RegistryGone, RegistryFull), _REGISTRY),
    **dict.fromkeys((BlobError, BlobStoreGone, BlobStoreFull), _BLOBS),
}
# Libraries that log for themselves when they cannot reach another server.
_LIBRARIES = {"opentelemetry": "collector of OpenTelemetry", "sqlalchemy": _REGISTRY}


class OutageFilter(logging.Filter):
    """Of the warnings and errors of one outage, passes the first in a minute. Its field `left_out` is the number of
    those before it that did not pass.

    A record is of an outage if one of its arguments is an error of the store, if a library that lost its server has
    made it, or if it has the name of an outage, by `extra={"outage": …}`. A record of less than a warning with such a
    name says that the outage is over, so that the next one is logged at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed_at = dict[str, float]()
        self._left_out = dict[str, int]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be written."""
        outage = _outage_of(record)
        if outage is None:
            return True
        if record.levelno < logging.WARNING:
            self._passed_at.pop(outage, None)
            return True
        now = time.monotonic()
        if now - self._passed_at.get(outage, -_PAUSE_SECONDS) < _PAUSE_SECONDS:
            self._left_out[outage] = self._left_out.get(outage, 0) + 1
            return False
        self._passed_at[outage] = now
        if count := self._left_out.pop(outage, 0):
            record.fields = {**getattr(record, "fields", {}), "left_out": count}
        return True


def _outage_of(record: logging.LogRecord) -> str | None:
    named: str | None = getattr(record, "outage", None)
    if named is not None:
        return named
    if record.levelno < logging.WARNING:
        return None
    known = (_FAILURES.get(type(one)) for one in _values(record))
    return next((one for one in known if one is not None), _LIBRARIES.get(record.name.partition(".")[0]))


def _values(record: logging.LogRecord) -> Iterator[object]:
    """What the record shows: its arguments and its exception."""
    if isinstance(record.args, tuple):
        yield from record.args
    if record.exc_info is not None:
        yield record.exc_info[1]
