"""Single keys of a terminal, without Enter."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_QUIT = b"qQ"
_INTERRUPT = b"\x03"


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
