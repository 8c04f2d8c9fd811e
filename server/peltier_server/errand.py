"""Something short to do while nothing is computed."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Errand:
    """`act`; `done` is set after it, whatever happens."""

    act: Callable[[], None]
    done: asyncio.Future[None]

    def run(self) -> None:
        """Never raises."""
        try:
            self.act()
        except BaseException:
            logger.exception("an errand between batches failed")
        self.done.get_loop().call_soon_threadsafe(_finish, self.done)


def _finish(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)
