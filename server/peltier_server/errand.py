"""Something short to do while nothing is computed."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from peltier_adapters.bank import Resident

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Errand:
    """`act`, for which no thread may be reading the slots of `resident`; `done` is set after it, whatever happens."""

    act: Callable[[], None]
    resident: Resident | None
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
