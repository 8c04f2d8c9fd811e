"""`peltier top`: the load of a server, live."""

import signal
import time
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from peltier_client.commands.arguments import ApiKey, Json, Url, with_next_steps
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.monitor.load import LoadSnapshot, Lost, read_load
from peltier_client.monitor.screen import Screen, line, quit_key
from peltier_client.synchronous import Client

_TIMEOUT_SECONDS = 5.0

Interval = Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two readings.")]
Once = Annotated[bool, typer.Option("--once", help="Print one line for one interval, then end.")]


def top(
    interval: Interval = 2.0, once: Once = False, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False
) -> None:
    """Show the load of a server, live: requests, queue, batches, runner, memory, busiest tenants and adapters.

    It reads GET /metrics, for which a key needs the scope metrics. Rates are those of the last interval. If stdout is
    not a terminal, every interval is one line. --json prints one interval. q and Ctrl-C end it.
    """
    console = Console()
    with with_next_steps(api_key), Client(url, api_key, timeout=_TIMEOUT_SECONDS, max_attempts=1) as client:
        if not (once or json) and console.is_terminal and not console.is_dumb_terminal:
            _show(console, client, interval)
            return
        for reading in read_load(client, partial(time.sleep, interval)):
            typer.echo(_told(reading, json=json))
            if once or json:
                return


def _told(reading: LoadSnapshot | Lost, *, json: bool) -> str:
    if not json:
        return line(reading)
    if isinstance(reading, Lost):
        raise reading.error
    return reading.model_dump_json()


def _show(console: Console, client: Client, interval: float) -> None:
    """Until q is typed. Rich draws four times a second, so a changed size of the terminal is seen soon."""
    with ExitStack() as stack:
        # So that the terminal is restored then too.
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _leave))
        live = stack.enter_context(
            Live("reading the first interval …", console=console, screen=True, vertical_overflow="crop")
        )
        is_ended = stack.enter_context(quit_key())
        shown: LoadSnapshot | None = None
        for reading in read_load(client, partial(is_ended or time.sleep, interval)):
            lost = reading if isinstance(reading, Lost) else None
            shown = reading if isinstance(reading, LoadSnapshot) else shown
            if shown is not None:
                live.update(Screen(shown, lost, keys=is_ended is not None), refresh=True)
            elif lost is not None:
                live.update(lost.error.message)


def _leave(*_: Any) -> None:
    raise typer.Exit
