"""Leases on entries of a queue: who has one holds the entry until it is over, by the clock of the database."""

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement
from sqlalchemy.orm import InstrumentedAttribute

# Much longer than any lease: after a failover the clock may be minutes behind, and the holders are still alive.
_MAX_LEASE = timedelta(hours=1)


def is_over(expires_at: InstrumentedAttribute[datetime | None], now: datetime) -> ColumnElement[bool]:
    """Whether nobody holds an entry, or its holder has died. A lease that ends later than any was given before the
    clock was put back."""
    return expires_at.is_(None) | (expires_at <= now) | (expires_at > now + _MAX_LEASE)
