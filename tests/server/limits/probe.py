"""Probes of the rows of docs/limits.md."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import httpx2

from tests.server.limits.servers import Servers

# What the caller of a server reads who meets the bound: an answer, or the page's own words where there is none.
Met = httpx2.Response | str
Meet = Callable[[Servers], Met]


@dataclass(frozen=True)
class Probe:
    """Meets a bound. `source` says what one is that no setting or quota sets: a number, or the name of a constant."""

    meet: Meet
    source: float | str | None

    @property
    def default(self) -> object:
        if not isinstance(self.source, str):
            return self.source
        module, _, name = self.source.rpartition(".")
        return getattr(importlib.import_module(module), name)


PROBES: dict[str, Probe] = {}


def probe(bound: str, source: float | str | None = None) -> Callable[[Meet], Meet]:
    """The probe of the row whose first cell is `bound`."""

    def register(meet: Meet) -> Meet:
        assert bound not in PROBES, f"there are two probes of {bound!r}"
        PROBES[bound] = Probe(meet, source)
        return meet

    return register
