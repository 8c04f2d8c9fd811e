"""Whether tenants of equal weight get equal time with adapters of different cost: a running server over a real socket.

    .venv/bin/python benchmarks/time_shares.py [--seconds 15] [--data validation.jsonl.gz]

The server has one thread and MiniLM. First one tenant floods it with one kind of rows, which gives its rate alone. Then
two tenants flood it, each with its kind. A tenant's share of the time is its rate beside the other tenant divided by
its rate alone, so the shares are equal if both are slowed down equally. The target is a ratio of the shares within 1 :
1.25. Rates are rows per CPU second of the server's process, which depends little on other programs.
"""

import argparse
import asyncio
import random
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from common.adapters import make_bytes, make_task
from common.sentences import load_sentences
from common.serving import Server, serving
from peltier_backbone.load import load_backbone
from peltier_client import AsyncClient, PeltierError

OPERATOR = "plt_operator-of-the-benchmark"
TENANTS = ("one", "two")
_NUM_FLOODING, _SENTENCES_AT_ONCE, _SENTENCES_OF_A_LONG_TEXT = 8, 16, 20
_WARM_SECONDS = 4.0
_MAX_LENGTH = 512
_ROWS = re.compile(r'^peltier_tenant_rows_total\{tenant="(\w+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True)
class Kind:
    """Rows of an adapter, of a sentence or of a text of about 500 tokens."""

    name: str
    preset: str
    settings: dict[str, int] = field(default_factory=dict)
    long: bool = False


COMPACTER = Kind("compacter", "compacter")
PREFIX = Kind("prefix 512", "prefix", {"length": 512})
BOTTLENECK = Kind("bottleneck 2048", "pfeiffer", {"bottleneck": 2048})
PHM = Kind("phm 1024, n = 32", "phm", {"n": 32, "bottleneck": 1024})
LONG = Kind("compacter, long", "compacter", long=True)
KINDS = (COMPACTER, PREFIX, BOTTLENECK, PHM, LONG)
PAIRS = (
    *((COMPACTER, other) for other in KINDS),
    (PREFIX, BOTTLENECK),
    (PREFIX, LONG),
    (PHM, LONG),
)


class Stage:
    """A server, two tenants' clients, and the texts that they send."""

    def __init__(self, server: Server, sentences: Sequence[str]) -> None:
        self._server, self._url, self._sentences, self._draw = server, server.url, sentences, random.Random(0)
        self._operator = httpx2.AsyncClient(
            base_url=server.url, headers={"authorization": f"Bearer {OPERATOR}"}, timeout=60
        )
        self._clients: dict[str, AsyncClient] = {}

    async def settle_in(self, files: dict[str, bytes]) -> None:
        """Gives each tenant a key and every adapter."""
        async with AsyncClient(self._url, OPERATOR) as operator:
            for name in TENANTS:
                await operator.create_tenant(name)
                key = (await operator.create_key("predict", "publish", tenant=name)).key
                self._clients[name] = AsyncClient(self._url, key, timeout=300)
                for adapter, data in files.items():
                    await self._clients[name].upload(data, name=adapter)

    async def rates(self, kinds: dict[str, Kind], seconds: float) -> dict[str, float]:
        """Rows a CPU second of each tenant, all of whom flood the server."""
        asking = [(tenant, kind) for tenant, kind in kinds.items() for _ in range(_NUM_FLOODING)]
        floods = [asyncio.ensure_future(self._flood(tenant, kind)) for tenant, kind in asking]
        await asyncio.sleep(_WARM_SECONDS)
        before, begun = await self._rows(), self._server.cpu_seconds
        await asyncio.sleep(seconds)
        after, taken = await self._rows(), self._server.cpu_seconds - begun
        for flood in floods:
            flood.cancel()
        await asyncio.gather(*floods, return_exceptions=True)
        return {tenant: (after[tenant] - before.get(tenant, 0)) / taken for tenant in kinds}

    async def close(self) -> None:
        """Ends every connection."""
        for client in self._clients.values():
            await client.close()
        await self._operator.aclose()

    async def _rows(self) -> dict[str, float]:
        page = (await self._operator.get("/metrics")).text
        return {tenant: float(rows) for tenant, rows in _ROWS.findall(page)}

    async def _flood(self, tenant: str, kind: Kind) -> None:
        while True:
            with suppress(PeltierError):  # a full queue, which the client has waited for long enough
                await self._clients[tenant].predict(adapter_name(kind), self._texts(kind))

    def _texts(self, kind: Kind) -> list[str]:
        if not kind.long:
            return self._draw.sample(self._sentences, _SENTENCES_AT_ONCE)
        return [" ".join(self._draw.sample(self._sentences, _SENTENCES_OF_A_LONG_TEXT)) for _ in range(4)]


def adapter_name(kind: Kind) -> str:
    """The name of its upload."""
    return "".join(letter if letter.isalnum() else "-" for letter in kind.name).strip("-")


async def show(server: Server, sentences: Sequence[str], files: dict[str, bytes], seconds: float) -> None:
    """Prints the table."""
    stage = Stage(server, sentences)
    try:
        await stage.settle_in(files)
        print(f"{'rows a CPU second':40}{'alone':>16}{'together':>16}{'shares of time':>18}{'ratio':>8}")
        alone: dict[str, float] = {}
        for one, other in PAIRS:
            for kind in (one, other):
                if kind.name not in alone:
                    alone[kind.name] = (await stage.rates({"one": kind}, seconds))["one"]
            both = await stage.rates({"one": one, "two": other}, seconds)
            _print(one, other, (alone[one.name], alone[other.name]), (both["one"], both["two"]))
    finally:
        await stage.close()


def _print(one: Kind, other: Kind, alone: tuple[float, float], both: tuple[float, float]) -> None:
    shares = [rate / base for rate, base in zip(both, alone, strict=True)]
    ratio = max(shares) / max(min(shares), 1e-9)
    rates = [f"{first:.0f} / {second:.0f}" for first, second in (alone, both)]
    shown = " / ".join(f"{100 * share:.0f} %" for share in shares)
    print(f"{one.name + ' / ' + other.name:40}{rates[0]:>16}{rates[1]:>16}{shown:>18}{ratio:8.2f}", flush=True)


def main() -> None:
    """As the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="for each rate")
    parser.add_argument("--max-batch-tokens", type=int, default=1024, help="of the server")
    parser.add_argument("--data", type=Path, help="sentences, as .jsonl.gz with a column of that name")
    given = parser.parse_args()
    backbone, sentences = load_backbone("minilm"), load_sentences(given.data, 800)
    task = make_task(backbone, max_length=_MAX_LENGTH)
    files = {adapter_name(kind): make_bytes(backbone, kind.preset, 0, task=task, **kind.settings) for kind in KINDS}
    with tempfile.TemporaryDirectory() as directory:
        flags = ("--max-batch-tokens", str(given.max_batch_tokens))
        with serving(Path(directory) / "store", *flags, environment={"PELTIER_ADMIN_KEY": OPERATOR}) as server:
            asyncio.run(show(server, sentences, files, given.seconds))


if __name__ == "__main__":
    main()
