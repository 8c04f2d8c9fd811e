"""Whether tenants of equal weight get equal time with adapters of different cost: a running server over a real socket.

    .venv/bin/python benchmarks/time_shares.py [--seconds 15] [--data validation.jsonl.gz] [--kind "20 tasks"]

The server has one thread and MiniLM, and for texts the T5 of this repository. First one tenant floods it with one kind
of rows, which gives its rate alone. Then two tenants flood it, each with its kind. A tenant's share of the time is its
rate beside the other tenant divided by its rate alone, so the shares are equal if both are slowed down equally. The
target is a ratio of the shares within 1 : 1.25. Rates are rows per CPU second of the server's process. The time of
shared batches is not bounded, so that their size does not depend on other programs.
"""

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from common.adapters import make_bytes, make_task
from common.harness import Table, add_data, create_parser
from common.sentences import load_sentences
from common.serving import Server, serving
from common.tenants import ENVIRONMENT, TenantClients, flooding
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone

TENANTS = ("one", "two")
_NUM_FLOODING, _SENTENCES_AT_ONCE, _SENTENCES_OF_A_LONG_TEXT = 12, 16, 20
_WARM_SECONDS = 4.0
_MAX_LENGTH = 512


@dataclass(frozen=True)
class RowKind:
    """Rows of `tasks` adapters for each sentence, or for each text of about 500 tokens. On a T5 they are texts, of at
    most `words` tokens."""

    name: str
    preset: str
    settings: dict[str, int] = field(default_factory=dict)
    long: bool = False
    tasks: int = 1
    words: int = 0

    @property
    def adapters(self) -> list[str]:
        """The names of its uploads."""
        name = "".join(letter if letter.isalnum() else "-" for letter in self.name).strip("-")
        return [f"{name}.{number}" for number in range(self.tasks)]

    def files(self, backbone: Backbone) -> dict[str, bytes]:
        """Its uploads by name."""
        task = make_task(backbone, max_length=_MAX_LENGTH)
        if task.decoding is not None:
            decoding = task.decoding.model_copy(update={"max_new_tokens": self.words})
            task = task.model_copy(update={"decoding": decoding})
        return {
            name: make_bytes(backbone, self.preset, number, task=task, **self.settings)
            for number, name in enumerate(self.adapters)
        }


COMPACTER = RowKind("compacter", "compacter")
PREFIX = RowKind("prefix 512", "prefix", {"length": 512})
BOTTLENECK = RowKind("bottleneck 2048", "pfeiffer", {"bottleneck": 2048})
PHM = RowKind("phm 1024, n = 32", "phm", {"n": 32, "bottleneck": 1024})
LONG = RowKind("compacter, long", "compacter", long=True)
# They share the first five of the six blocks.
TASKS = RowKind("20 tasks", "compacter", {"first_block": 5}, tasks=20)
ENCODER_PAIRS = (
    *((COMPACTER, other) for other in (COMPACTER, PREFIX, BOTTLENECK, PHM, LONG, TASKS)),
    (PREFIX, BOTTLENECK),
    (PREFIX, LONG),
    (PHM, LONG),
)
SHORT_TEXT = RowKind("texts of up to 8 tokens", "compacter", words=8)
LONG_TEXT = RowKind("texts of up to 64 tokens", "compacter", words=64)
LONG_INPUT = RowKind("long inputs, up to 8 tokens", "compacter", words=8, long=True)
TEXT_PAIRS = ((SHORT_TEXT, LONG_TEXT), (SHORT_TEXT, LONG_INPUT), (LONG_TEXT, LONG_INPUT))
PAIRS = {"minilm": ENCODER_PAIRS, str(Path(__file__).parents[1] / "examples/backbones/t5-mini"): TEXT_PAIRS}


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
        client, texts = self._tenants.clients[tenant], self._texts(kind)
        if kind.tasks == 1:
            await client.predict(kind.adapters[0], texts)
        else:
            await client.predict_tasks(kind.adapters, texts[0])

    def _texts(self, kind: RowKind) -> list[str]:
        if not kind.long:
            return self._draw.sample(self._sentences, _SENTENCES_AT_ONCE)
        return [" ".join(self._draw.sample(self._sentences, _SENTENCES_OF_A_LONG_TEXT)) for _ in range(4)]


async def measure(rates: FloodRates, pairs: Sequence[tuple[RowKind, RowKind]], seconds: float, table: Table) -> None:
    """Prints the rows of `pairs`."""
    alone: dict[str, float] = {}
    for one, other in pairs:
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


async def show(server: Server, given: argparse.Namespace, files: dict[str, bytes], table: Table) -> None:
    """Uploads the files of `given.pairs` for two tenants, and prints the rows of the pairs."""
    async with TenantClients(server.url) as tenants:
        for name in TENANTS:
            await tenants.add(name, files)
        rates = FloodRates(server, tenants, load_sentences(given.data, 800))
        await measure(rates, given.pairs, given.seconds, table)


def main() -> None:
    parser = create_parser(__doc__, seconds=15.0, max_batch_tokens=1024)
    add_data(parser)
    parser.add_argument("--kind", help="only pairs with this kind of rows")
    given = parser.parse_args()
    table = Table("rows a CPU second", "alone", "together", "shares of time", "ratio", first=56)
    for name, all_pairs in PAIRS.items():
        given.pairs = [pair for pair in all_pairs if given.kind in (None, *(kind.name for kind in pair))]
        if not given.pairs:
            continue
        backbone = load_backbone(name)
        files = {file: data for pair in given.pairs for kind in pair for file, data in kind.files(backbone).items()}
        flags = ("--backbone", name, "--max-batch-tokens", str(given.max_batch_tokens))
        with serving(*flags, "--max-shared-batch-seconds", "1000", environment=ENVIRONMENT) as server:
            asyncio.run(show(server, given, files, table))


if __name__ == "__main__":
    main()
