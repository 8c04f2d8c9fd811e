"""Draws the load of a server on a terminal, or as one line, and reads the key that ends it."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from rich.console import Console, ConsoleOptions, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from peltier_client.monitor.load import LoadSnapshot, Lost, TierLoad

Row = Sequence[Text | str]

_BUSY, _FULL = 0.7, 0.9
# Lines of a screen besides the rows of tenants and adapters.
_FIXED_LINES = 16
_NUM_TENANT_SHARE = 3
_QUIT = b"qQ\x03"


@dataclass(frozen=True)
class Screen:
    """A snapshot, drawn anew for each size of the terminal. `lost` says that the numbers are old, `keys` that q
    quits."""

    snapshot: LoadSnapshot
    lost: Lost | None
    keys: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        room = max(2, console.height - _FIXED_LINES)
        tenants, adapters = self.snapshot.tenants, self.snapshot.adapters
        num_tenants = max(1, min(len(tenants), room // _NUM_TENANT_SHARE))
        yield self._head()
        yield ""
        yield _figures(self.snapshot)
        quarantined = ", ".join(self.snapshot.quarantined_versions)
        yield Text(quarantined and f"in quarantine: {quarantined}", "bold red", no_wrap=True, overflow="ellipsis")
        yield _table(
            ("tenant", "requests/s", "errors/s", "tokens/s", "queue tokens"),
            (
                (
                    one.tenant,
                    f"{one.requests_per_second:,.1f}",
                    _errors(one.errors_per_second, unit=""),
                    f"{one.tokens_per_second:,.0f}",
                    f"{one.queue_tokens:,}",
                )
                for one in tenants[:num_tenants]
            ),
        )
        yield ""
        yield _table(
            ("adapter", "requests/s", "errors/s", "p50, about", "p99, about"),
            (
                (
                    one.name,
                    f"{one.requests_per_second:,.1f}",
                    _errors(one.errors_per_second, unit=""),
                    _time(one.p50_ms),
                    _time(one.p99_ms),
                )
                for one in adapters[: room - num_tenants]
            ),
        )
        stop = "q or Ctrl-C quits" if self.keys else "Ctrl-C quits"
        yield Text(f"\nthe last {self.snapshot.seconds:.1f} s; {stop}", "dim")

    def _head(self) -> Text:
        snapshot, lost = self.snapshot, self.lost
        started = f"  started {snapshot.started_at.astimezone():%Y-%m-%d %H:%M}" if snapshot.started_at else ""
        state = (snapshot.state, "bold green" if snapshot.state == "ready" else "bold red")
        head: list[str | tuple[str, str]] = [f"{(lost or snapshot).at.astimezone():%H:%M:%S}  ", state, started]
        if lost is not None:
            since = f"\nserver lost; the numbers are of {snapshot.at.astimezone():%H:%M:%S}: {lost.error.message}"
            head.append((since, "bold red"))
        return Text.assemble(*head, no_wrap=True, overflow="ellipsis")


def line(reading: LoadSnapshot | Lost) -> str:
    """The same in one line, for a log."""
    clock = f"{reading.at.astimezone():%H:%M:%S}"
    if isinstance(reading, Lost):
        return f"{clock} lost: {reading.error.message}"
    requests, queue = reading.requests, reading.queue
    busiest = [f"{one.name} {one.requests_per_second:.1f}/s" for one in reading.adapters[:3] if one.requests_per_second]
    return "  ".join(
        [
            f"{clock} {reading.state}",
            f"{requests.per_second:.1f} requests/s",
            f"{requests.errors_per_second:.1f} errors/s",
            f"p50 {_time(requests.p50_ms)}",
            f"p99 {_time(requests.p99_ms)}",
            f"queue {queue.tokens:,} tokens",
            f"fill {_share(reading.batches.fill)}",
            f"{queue.tokens_per_second:,.0f} tokens/s",
            f"busy {_share(reading.runner.busy)}",
            f"quarantine {reading.quarantined}",
            *(["busiest " + ", ".join(busiest)] if busiest else []),
        ]
    )


def _figures(snapshot: LoadSnapshot) -> Table:
    requests, queue, batches, runner = snapshot.requests, snapshot.queue, snapshot.batches, snapshot.runner
    waiting = Text(f"{queue.tokens:,} tokens", style="red" if (queue.fill or 0.0) >= _BUSY else "")
    rate, errors = f"{requests.per_second:,.1f}/s", _errors(requests.errors_per_second)
    wait, started = f"wait {_time(queue.wait_ms)}", f"{queue.rows_per_second:,.1f} rows/s"
    restarts, quarantined = _alarm(runner.restarts, "restarts"), _alarm(snapshot.quarantined, "in quarantine")
    generated = f"{runner.generated_tokens_per_second:,.0f} tokens/s"
    computed, fill = f"{batches.per_second:,.1f}/s", _level("fill", batches.fill)
    grid = Table.grid(*[""] * 5, padding=(0, 2, 0, 0))
    for column, style in zip(grid.columns, ("bold", "", "", "", ""), strict=True):
        column.style, column.no_wrap = style, True
    rows: list[Row] = [
        ("requests", rate, errors, f"p50 {_time(requests.p50_ms)}", f"p99 {_time(requests.p99_ms)}"),
        ("queue", waiting, wait, started, f"{queue.tokens_per_second:,.0f} tokens/s"),
        ("batches", computed, f"{_number(batches.rows)} rows", f"{_number(batches.adapters)} adapters", fill),
        ("runner", _level("busy", runner.busy), restarts, quarantined),
        ("texts", f"{runner.texts_in_progress:,} in progress", "", "", generated),
        *map(_tier, snapshot.tiers),
        ("store", f"{snapshot.store_hits_per_second:,.1f} hits/s", f"{snapshot.loads_per_second:,.1f} loads/s"),
    ]
    for row in rows:
        grid.add_row(*row)
    return grid


def _tier(tier: TierLoad) -> Row:
    return (
        tier.tier,
        f"{tier.hits_per_second:,.1f} hits/s",
        f"{tier.adapters:,} adapters",
        f"{decimal(tier.size_bytes)} of {decimal(tier.max_bytes)}",
        f"{tier.evictions_per_second:,.1f} evictions/s",
    )


def _table(names: Sequence[str], rows: Iterable[Row]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="reverse", expand=True)
    table.add_column(names[0], ratio=1, no_wrap=True, overflow="ellipsis")
    for name in names[1:]:
        table.add_column(name, justify="right", no_wrap=True, width=12)
    for row in rows:
        table.add_row(*row)
    return table


def _level(name: str, share: float | None) -> Text:
    style = "" if share is None or share < _BUSY else "red" if share >= _FULL else "yellow"
    return Text(f"{name} {_share(share)}", style)


def _errors(per_second: float, unit: str = " errors/s") -> Text:
    return Text(f"{per_second:,.1f}{unit}", style="red" if per_second else "")


def _alarm(count: int, what: str) -> Text:
    return Text(f"{count} {what}", style="bold red" if count else "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _time(ms: float | None) -> str:
    if ms is None:
        return "-"
    return f"{ms:,.1f} ms" if ms < 1000 else f"{ms / 1000:,.1f} s"


@contextmanager
def quit_key() -> Iterator[Callable[[float], bool] | None]:
    """Yields a function that waits so many seconds, and ends early and returns True once q is typed; None if this
    terminal gives no keys. At the end the terminal is as it was."""
    if os.name == "nt" or not sys.stdin.isatty():
        yield None
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield partial(_is_ended, terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _is_ended(terminal: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            typed = os.read(terminal, 64)
            # A terminal that was closed gives no bytes.
            if not typed or any(key in _QUIT for key in typed):
                return True
    return False
