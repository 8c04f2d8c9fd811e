"""Whether tenants of equal weight get equal time with adapters of different cost: a running server over a real socket.

    .venv/bin/python benchmarks/time_shares.py [--seconds 15] [--data validation.jsonl.gz]

The server has one thread and MiniLM. First one tenant floods it with one kind of rows, which gives its rate alone. Then
two tenants flood it, each with its kind. A tenant's share of the time is its rate beside the other tenant divided by
its rate alone, so the shares are equal if both are slowed down equally. The target is a ratio of the shares within 1 :
1.25. Rates are rows per CPU second of the server's process, which depends little on other programs.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial

from common.adapters import make_bytes, make_task
from common.harness import Table, add_data, create_parser
from common.sentences import load_sentences
from common.serving import Server, serving
from common.tenants import ENVIRONMENT, TenantClients, flooding
from peltier_backbone.load import load_backbone

TENANTS = ("one", "two")
_NUM_FLOODING, _SENTENCES_AT_ONCE, _SENTENCES_OF_A_LONG_TEXT = 8, 16, 20
_WARM_SECONDS = 4.0
_MAX_LENGTH = 512


@dataclass(frozen=True)
class RowKind:
    """Rows of an adapter, of a sentence or of a text of about 500 tokens."""

    name: str
    preset: str
    settings: dict[str, int] = field(default_factory=dict)
    long: bool = False


COMPACTER = RowKind("compacter", "compacter")
PREFIX = RowKind("prefix 512", "prefix", {"length": 512})
BOTTLENECK = RowKind("bottleneck 2048", "pfeiffer", {"bottleneck": 2048})
PHM = RowKind("phm 1024, n = 32", "phm", {"n": 32, "bottleneck": 1024})
LONG = RowKind("compacter, long", "compacter", long=True)
KINDS = (COMPACTER, PREFIX, BOTTLENECK, PHM, LONG)
PAIRS = (*((COMPACTER, other) for other in KINDS), (PREFIX, BOTTLENECK), (PREFIX, LONG), (PHM, LONG))


class FloodRates:
    """Measures the rates of tenants that flood a server."""

    def __init__(self, server: Server, tenants: TenantClients, sentences: Sequence[str]) -> None:
        self._server, self._tenants, self._sentences = server, tenants, sentences
        self._draw = random.Random(0)

    async def measure(self, kinds: dict[str, RowKind], seconds: float) -> dict[str, float]:
        """Rows a CPU second of each tenant, all of whom flood the server."""
        async with AsyncExitStack() as floods:
            for tenant, kind in kinds.items():
                await floods.enter_async_context(flooding(partial(self._ask, tenant, kind), _NUM_FLOODING))
            await asyncio.sleep(_WARM_SECONDS)
            before, begun = await self._rows(), self._server.cpu_seconds
            await asyncio.sleep(seconds)
            after, taken = await self._rows(), self._server.cpu_seconds - begun
        return {tenant: (after[tenant] - before[tenant]) / taken for tenant in kinds}

    async def _rows(self) -> Counter[str]:
        return await self._tenants.counter("peltier_tenant_rows_total")

    async def _ask(self, tenant: str, kind: RowKind) -> None:
        await self._tenants.clients[tenant].predict(adapter_name(kind), self._texts(kind))

    def _texts(self, kind: RowKind) -> list[str]:
        if not kind.long:
            return self._draw.sample(self._sentences, _SENTENCES_AT_ONCE)
        return [" ".join(self._draw.sample(self._sentences, _SENTENCES_OF_A_LONG_TEXT)) for _ in range(4)]


def adapter_name(kind: RowKind) -> str:
    """The name of its upload."""
    return "".join(letter if letter.isalnum() else "-" for letter in kind.name).strip("-")


async def show(server: Server, sentences: Sequence[str], files: dict[str, bytes], seconds: float) -> None:
    """Prints the table."""
    async with TenantClients(server.url) as tenants:
        for name in TENANTS:
            await tenants.add(name, files)
        rates = FloodRates(server, tenants, sentences)
        table = Table("rows a CPU second", "alone", "together", "shares of time", "ratio", first=40)
        alone: dict[str, float] = {}
        for one, other in PAIRS:
            for kind in (one, other):
                if kind.name not in alone:
                    alone[kind.name] = (await rates.measure({"one": kind}, seconds))["one"]
            both = await rates.measure({"one": one, "two": other}, seconds)
            rates_alone = alone[one.name], alone[other.name]
            shares = [rate / base for rate, base in zip(both.values(), rates_alone, strict=True)]
            ratio = max(shares) / min(shares) if all(shares) else float("inf")
            cells = [f"{first:.0f} / {second:.0f}" for first, second in (rates_alone, both.values())]
            cells.append(" / ".join(f"{share:.0%}" for share in shares))
            table.row(f"{one.name} / {other.name}", *cells, f"{ratio:.2f}")


def main() -> None:
    parser = create_parser(__doc__, seconds=15.0, max_batch_tokens=1024)
    add_data(parser)
    given = parser.parse_args()
    backbone, sentences = load_backbone("minilm"), load_sentences(given.data, 800)
    task = make_task(backbone, max_length=_MAX_LENGTH)
    files = {adapter_name(kind): make_bytes(backbone, kind.preset, 0, task=task, **kind.settings) for kind in KINDS}
    with serving("--max-batch-tokens", str(given.max_batch_tokens), environment=ENVIRONMENT) as server:
        asyncio.run(show(server, sentences, files, given.seconds))


if __name__ == "__main__":
    main()
