"""`peltier top`: the load of a server, live."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from peltier_client.asynchronous import AsyncClient
from peltier_client.commands.arguments import ApiKey, Json, Url, with_next_steps
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.monitor.screen import draw, line, quit_key
from peltier_client.monitor.snapshot import LoadSnapshot, Lost, read_load

_TIMEOUT_SECONDS = 5.0
# A changed size of the terminal is seen after this time.
_REDRAW_SECONDS = 0.25

Readings = AsyncGenerator[LoadSnapshot | Lost, None]
Interval = Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two readings.")]
Once = Annotated[bool, typer.Option("--once", help="Print one line for one interval, then end.")]


def top(
    interval: Interval = 2.0, once: Once = False, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False
) -> None:
    """Show the load of a server, live: requests, queue, batches, runner, memory, busiest tenants and adapters.

    It reads GET /v1/live, for which a key needs the scope metrics. Rates are those of the last interval. If stdout is
    not a terminal, every interval is one line. --json prints one interval. q and Ctrl-C end it.
    """
    with with_next_steps(api_key):
        asyncio.run(_run(AsyncClient(url, api_key, timeout=_TIMEOUT_SECONDS, max_attempts=1), interval, once, json))


async def _run(client: AsyncClient, interval: float, once: bool, json: bool) -> None:
    console = Console()
    async with client, aclosing(read_load(client, interval)) as readings:
        if once or json:
            typer.echo(_told(await anext(readings), json=json))
        elif console.is_terminal and not console.is_dumb_terminal:
            await _show(console, readings)
        else:
            async for reading in readings:
                typer.echo(line(reading))
                sys.stdout.flush()


def _told(reading: LoadSnapshot | Lost, *, json: bool) -> str:
    if not json:
        return line(reading)
    if isinstance(reading, Lost):
        raise reading.error
    return reading.model_dump_json()


class _Screen:
    """The last snapshot on a terminal's second screen, drawn again when it changes or the terminal's size does."""

    def __init__(self, console: Console, live: Live, *, keys: bool) -> None:
        self._console, self._live, self._keys = console, live, keys
        self._snapshot: LoadSnapshot | None = None
        self._lost: Lost | None = None
        self._size = console.size

    def take(self, reading: LoadSnapshot | Lost) -> None:
        """Show a new reading."""
        if isinstance(reading, Lost):
            self._lost = reading
        else:
            self._snapshot, self._lost = reading, None
        self._draw()

    def fit(self) -> None:
        """Draw again if the terminal has another size."""
        if self._console.size != self._size:
            self._draw()

    def _draw(self) -> None:
        self._size = self._console.size
        if self._snapshot is not None:
            shown = draw(self._snapshot, self._lost, self._size.height, keys=self._keys)
        else:
            shown = Text(self._lost.error.message if self._lost else "")
        self._live.update(shown, refresh=True)


async def _show(console: Console, readings: Readings) -> None:
    """Until q is typed."""
    leave = asyncio.Event()
    waiting = Text("reading the first interval …")
    with (
        Live(waiting, console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
        quit_key(leave) as keys,
        _end_at_sigterm(leave),
    ):
        screen = _Screen(console, live, keys=keys)
        following = asyncio.create_task(_follow(readings, screen))
        ended = asyncio.create_task(leave.wait())
        try:
            while not ended.done() and not following.done():
                await asyncio.wait({ended, following}, timeout=_REDRAW_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                screen.fit()
        finally:
            for task in (ended, following):
                task.cancel()
            await asyncio.gather(ended, following, return_exceptions=True)
        if not following.cancelled():
            following.result()


async def _follow(readings: Readings, screen: _Screen) -> None:
    async for reading in readings:
        screen.take(reading)


@contextmanager
def _end_at_sigterm(leave: asyncio.Event) -> Iterator[None]:
    """So that the terminal is restored then too."""
    if os.name == "nt":
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, leave.set)
    try:
        yield
    finally:
        with suppress(ValueError):
            loop.remove_signal_handler(signal.SIGTERM)
