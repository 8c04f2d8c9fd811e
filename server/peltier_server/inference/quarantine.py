"""Refuses requests for adapter versions that fail repeatedly."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from peltier_client.errors import InferenceFailed
from peltier_client.protocol.operations import QuarantinedVersion

from peltier_server.catalog.published import Entry
from peltier_server.context import AdapterKey
from peltier_server.metrics.metrics import Metrics
from peltier_server.runner.isolation import NotFinite

logger = logging.getLogger(__name__)

_MAX_FAILURES = 3
_FIRST_PAUSE_SECONDS = 10.0
_MAX_PAUSE_SECONDS = 600.0
# Older failures are ignored.
_FORGET_SECONDS = 3600.0

_Key = tuple[str, AdapterKey]


@dataclass
class _Record:
    """The consecutive failures of one version. Times are seconds of the quarantine's clock."""

    entry: Entry
    num_failures: int = 0
    reason: str = ""
    failed_at: float = 0.0
    pause_seconds: float = 0.0
    trying: bool = False

    @property
    def open(self) -> bool:
        return self.num_failures >= _MAX_FAILURES

    @property
    def until(self) -> float:
        return self.failed_at + self.pause_seconds

    def __str__(self) -> str:
        return f"adapter {self.entry.version.name!r} version {self.entry.number}"


class Quarantine:
    """A circuit breaker per tenant and version: three consecutive `InferenceFailed` open it, a success closes it. A
    `NotFinite` alone tells nothing of the version (see `Predictor`).

    While it is open, requests for the version are refused at once. After a pause one request is admitted as a trial.
    Each failed trial doubles the pause, up to ten minutes. Two failures are consecutive if the second request arrived
    after the first had failed, so the requests of one failed batch count once. Requests that are cancelled, late or
    refused for another reason do not count. The requests of a tenant count for that tenant only, so no tenant can block
    a public adapter for other tenants or learn about their failures. Belongs to the event loop.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._records: dict[_Key, _Record] = {}

    @contextmanager
    def attempt(self, tenant: str, entry: Entry) -> Iterator[None]:
        """A block that is one request of `tenant` for the version. Raises `InferenceFailed` if the version is in
        quarantine for this tenant."""
        key = (tenant, entry.owned)
        record = self._records.get(key)
        is_trial = record is not None and self._let_in(record)
        num_before = 0 if record is None else record.num_failures
        try:
            yield
        except BaseException as error:
            if isinstance(error, InferenceFailed) and not isinstance(error, NotFinite):
                failed = self._records.setdefault(key, _Record(entry))
                if failed.num_failures == num_before:
                    self._fail(key, failed, error)
            elif is_trial and record is not None:
                record.trying = False
            raise
        self._succeed(key)

    def of(self, tenant: str) -> list[QuarantinedVersion]:
        """The versions in quarantine for `tenant`."""
        return [self._describe(record) for whose, record in self._open() if whose == tenant]

    def _open(self) -> Iterator[tuple[str, _Record]]:
        return ((tenant, record) for (tenant, _), record in self._records.items() if record.open)

    def _describe(self, record: _Record) -> QuarantinedVersion:
        return QuarantinedVersion(
            adapter=record.entry.reference,
            num_failures=record.num_failures,
            reason=record.reason,
            retry_after_seconds=max(0.0, record.until - self._clock()),
        )

    def _let_in(self, record: _Record) -> bool:
        if not record.open:
            return False
        wait = record.until - self._clock()
        if wait <= 0 and not record.trying:
            record.trying = True
            return True
        again = f"in {math.ceil(wait)} s" if wait > 0 else "just now"
        raise InferenceFailed(
            f"{record} is in quarantine on this replica after {record.num_failures} failures in a row, the last of "
            f"them: {record.reason}; it is tried again {again}",
            retry_after=max(1.0, wait),
        )

    def _fail(self, key: _Key, record: _Record, error: InferenceFailed) -> None:
        record.reason, record.failed_at = error.message, self._clock()
        record.num_failures += 1
        if record.open:
            record.pause_seconds = min(2 * record.pause_seconds, _MAX_PAUSE_SECONDS) or _FIRST_PAUSE_SECONDS
            record.trying = False
            logger.warning(
                "%s of %s is in quarantine for %g s after %d failures in a row of requests of %s: %s",
                record,
                record.entry.version.tenant,
                record.pause_seconds,
                record.num_failures,
                key[0],
                record.reason,
            )
        self._forget()
        self._report()

    def _succeed(self, key: _Key) -> None:
        record = self._records.pop(key, None)
        if record is not None and record.open:
            logger.info("%s of %s answers requests of %s again", record, record.entry.version.tenant, key[0])
            self._report()

    def _forget(self) -> None:
        before = self._clock() - _FORGET_SECONDS
        self._records = {key: record for key, record in self._records.items() if record.failed_at > before}

    def _report(self) -> None:
        by_key = {owned: record.entry.labels for (_, owned), record in self._records.items() if record.open}
        self._metrics.set_quarantined(list(by_key.values()))
