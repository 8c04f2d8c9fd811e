"""Draws a snapshot for a terminal, or as one line, and reads the key that ends it."""

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from peltier_client.monitor.snapshot import AdapterLoad, LoadSnapshot, Lost, TenantLoad

_BAR_CELLS = 7
_BUSY, _FULL = 0.7, 0.9
# The lines of a screen without the rows of tenants and adapters.
_FIXED_LINES = 16
_NUM_TENANT_SHARE = 3
_QUIT = b"qQ"
_INTERRUPT = b"\x03"


def draw(snapshot: LoadSnapshot, lost: Lost | None, height: int, *, keys: bool) -> RenderableType:
    """The screen for a terminal of `height` lines. `lost` says that the numbers are old, `keys` that q quits."""
    room = max(2, height - _FIXED_LINES)
    num_tenants = max(1, min(len(snapshot.tenants), room // _NUM_TENANT_SHARE))
    parts: list[RenderableType] = [
        _head(snapshot, lost),
        Text(),
        _grid(_figures(snapshot)),
        Text(),
        _tenants(snapshot.tenants[:num_tenants]),
        Text(),
        _adapters(snapshot.adapters[: room - num_tenants]),
    ]
    return Group(*parts, _foot(snapshot, keys=keys))


def line(reading: LoadSnapshot | Lost) -> str:
    """The same in one line, for a log."""
    clock = f"{reading.at.astimezone():%H:%M:%S}"
    if isinstance(reading, Lost):
        return f"{clock} lost: {reading.error.message}"
    requests, queue, batches, runner = reading.requests, reading.queue, reading.batches, reading.runner
    busiest = [f"{one.task} {one.requests_per_second:.1f}/s" for one in reading.adapters[:3] if one.requests_per_second]
    return "  ".join(
        [
            f"{clock} {reading.state}",
            f"{requests.per_second:.1f} requests/s",
            f"{requests.errors_per_second:.1f} errors/s",
            f"p50 {_time(requests.p50_ms)}",
            f"p99 {_time(requests.p99_ms)}",
            f"queue {queue.tokens:,} tokens",
            f"fill {_percent(batches.fill)}",
            f"{queue.tokens_per_second:,.0f} tokens/s",
            f"busy {_percent(runner.busy)}",
            f"quarantine {reading.quarantined}",
            *(["busiest " + ", ".join(busiest)] if busiest else []),
        ]
    )


def _head(snapshot: LoadSnapshot, lost: Lost | None) -> Text:
    started = f"started {snapshot.started_at.astimezone():%Y-%m-%d %H:%M}"
    state = (snapshot.state, "bold green" if snapshot.state == "ready" else "bold red")
    clock = (lost or snapshot).at.astimezone()
    head = Text.assemble(f"{clock:%H:%M:%S}  ", state, f"  {started}", no_wrap=True, overflow="ellipsis")
    if lost is not None:
        since = f"server lost; the numbers are of {snapshot.at.astimezone():%H:%M:%S}: {lost.error.message}"
        head = Text.assemble(head, "\n", (since, "bold red"), no_wrap=True, overflow="ellipsis")
    return head


def _figures(snapshot: LoadSnapshot) -> list[Sequence[Text | str]]:
    requests, queue, batches, runner = snapshot.requests, snapshot.queue, snapshot.batches, snapshot.runner
    return [
        (
            "requests",
            f"{requests.per_second:,.1f}/s",
            _errors(requests.errors_per_second),
            f"p50 {_time(requests.p50_ms)}",
            f"p99 {_time(requests.p99_ms)}",
        ),
        (
            "queue",
            Text(f"{queue.tokens:,} tokens", style="red" if queue.fill >= _BUSY else ""),
            f"wait {_time(queue.wait_ms)}",
            f"{queue.rows_per_second:,.1f} rows/s",
            f"{queue.tokens_per_second:,.0f} tokens/s",
        ),
        (
            "batches",
            f"{batches.per_second:,.1f}/s",
            f"{_number(batches.rows)} rows",
            f"{_number(batches.adapters)} adapters",
            Text("fill ") + _bar(batches.fill),
        ),
        (
            "runner",
            Text("busy ") + _bar(runner.busy),
            Text(runner.state, style="bold red" if runner.state == "stuck" else ""),
            _alarm(runner.restarts, "restarts"),
            _alarm(snapshot.quarantined, "in quarantine"),
        ),
        (
            "texts",
            f"{runner.texts_in_progress:,} in progress",
            "",
            "",
            f"{runner.generated_tokens_per_second:,.0f} tokens/s",
        ),
        *(
            (
                tier.tier,
                f"{tier.hits_per_second:,.1f} hits/s",
                f"{tier.adapters:,} adapters",
                f"{decimal(tier.size_bytes)} of {decimal(tier.max_bytes)}",
                f"{tier.evictions_per_second:,.1f} evictions/s",
            )
            for tier in snapshot.tiers
        ),
        ("store", f"{snapshot.store_hits_per_second:,.1f} hits/s", f"{snapshot.loads_per_second:,.1f} loads/s", "", ""),
    ]


def _grid(rows: Iterable[Sequence[Text | str]]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for number in range(5):
        grid.add_column(style="bold" if number == 0 else "", no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    return grid


def _tenants(tenants: Sequence[TenantLoad]) -> Table:
    cells = (
        (
            one.tenant,
            f"{one.requests_per_second:,.1f}",
            _errors(one.errors_per_second, unit=""),
            f"{one.tokens_per_second:,.0f}",
            f"{one.queue_tokens:,}",
        )
        for one in tenants
    )
    return _table("tenant", ("requests/s", "errors/s", "tokens/s", "queue tokens"), cells)


def _adapters(adapters: Sequence[AdapterLoad]) -> Table:
    cells = (
        (
            one.task if one.tenant == "default" else f"{one.tenant}:{one.task}",
            f"{one.requests_per_second:,.1f}",
            _errors(one.errors_per_second, unit=""),
            _time(one.p50_ms),
            _time(one.p99_ms),
        )
        for one in adapters
    )
    return _table("adapter", ("requests/s", "errors/s", "p50", "p99"), cells)


def _table(subject: str, numbers: Sequence[str], rows: Iterable[Sequence[Text | str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="reverse", expand=True)
    table.add_column(subject, ratio=1, no_wrap=True, overflow="ellipsis")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True, width=12)
    for subject_cell, *cells in rows:
        table.add_row(Text(str(subject_cell)), *cells)
    return table


def _foot(snapshot: LoadSnapshot, *, keys: bool) -> Text:
    stop = "q or Ctrl-C quits" if keys else "Ctrl-C quits"
    shown = ", ".join(snapshot.quarantine)
    quarantine = [("\nin quarantine: " + shown, "red")] if shown else []
    return Text.assemble(*quarantine, (f"\nthe last {snapshot.seconds:.1f} s; {stop}", "dim"))


def _bar(share: float | None) -> Text:
    if share is None:
        return Text("-")
    full = round(min(1.0, share) * _BAR_CELLS)
    style = "red" if share >= _FULL else "yellow" if share >= _BUSY else "green"
    return Text.assemble(("█" * full, style), ("·" * (_BAR_CELLS - full), "dim"), f" {share:.0%}")


def _errors(per_second: float, unit: str = " errors/s") -> Text:
    return Text(f"{per_second:,.1f}{unit}", style="red" if per_second else "")


def _alarm(count: int, what: str) -> Text:
    return Text(f"{count} {what}", style="bold red" if count else "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _time(ms: float | None) -> str:
    if ms is None:
        return "-"
    return f"{ms:,.1f} ms" if ms < 1000 else f"{ms / 1000:,.1f} s"


@contextmanager
def quit_key(leave: asyncio.Event) -> Iterator[bool]:
    """Sets `leave` when q is typed; at the end the terminal is as it was. Yields whether this terminal gives keys.

    Call it in a running event loop.
    """
    if os.name == "nt" or not sys.stdin.isatty():
        yield False
        return
    import termios
    import tty

    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)

    def read() -> None:
        typed = os.read(terminal, 64)
        # A terminal that was closed gives no bytes.
        if not typed or any(key in _QUIT + _INTERRUPT for key in typed):
            leave.set()

    loop.add_reader(terminal, read)
    try:
        yield True
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
