"""From an upload to the first answer over HTTP, and many uploads at once.

    .venv/bin/python benchmarks/upload.py [--preset compacter] [--many 200] [--at-once 16]

The server validates an upload, computes its golden examples, stores it durably and registers it before it acknowledges
it; then the first answer follows. The server has one thread of the backbone. For many distinct uploads at once the
benchmark reports wall-clock time and the server's CPU time, which shows how many uploads one core can take. It also
reports the cost of the golden examples alone, in batches as the server computes them.
"""

import asyncio
import time

import torch
from common.adapters import INPUTS, make_bytes
from common.harness import create_parser, print_milliseconds
from common.serving import serving
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.golden.golden import golden_rows
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_client import AsyncClient, Client


def upload_seconds(client: Client, files: list[bytes]) -> list[tuple[float, float]]:
    """(upload, upload to first answer) of each file."""
    seconds = []
    for number, data in enumerate(files):
        start = time.perf_counter()
        client.upload(data, name=f"bench-{number}")
        uploaded = time.perf_counter()
        client.predict(f"bench-{number}", [INPUTS[0]])
        seconds.append((uploaded - start, time.perf_counter() - start))
    return seconds


async def upload_all(url: str, files: list[bytes], at_once: int) -> float:
    """Seconds until all uploads are acknowledged, with `at_once` in progress at a time."""
    turns = asyncio.Semaphore(at_once)
    async with AsyncClient(url, timeout=120) as client:

        async def upload(number: int, data: bytes) -> None:
            async with turns:
                await client.upload(data, name=f"many-{number}")

        start = time.perf_counter()
        await asyncio.gather(*(upload(number, data) for number, data in enumerate(files)))
        return time.perf_counter() - start


def golden_seconds(backbone: Backbone, files: list[bytes], at_once: int) -> float:
    """CPU seconds per adapter for golden examples, computed in one batch of `at_once` adapters."""
    banks = Banks(backbone)
    artifacts = [read_artifact(data, backbone) for data in files[:at_once]]
    rows = [row for one in artifacts for row in golden_rows(backbone, one.manifest, banks.add(one))]
    forward(backbone, rows)
    start = time.process_time()
    for _ in range(3):
        forward(backbone, rows)
    return (time.process_time() - start) / 3 / len(artifacts)


def show_many(seconds: float, used: float, golden: float, count: int) -> None:
    print(f"{count} uploads at once           {count / seconds:7.1f} a second by the clock")
    print(f"server's CPU time, each      {1e3 * used / count:7.2f} ms: one core takes {count / used:.1f} a second")
    print(f"golden examples alone, each  {1e3 * golden:7.2f} ms: one core takes {1 / golden:.1f} a second")


def main() -> None:
    options = create_parser(__doc__, preset="compacter", count=40, many=200, at_once=16).parse_args()
    torch.set_num_threads(1)
    backbone = load_backbone("minilm")
    files = [make_bytes(backbone, options.preset, number) for number in range(options.count)]
    many = [make_bytes(backbone, options.preset, options.count + number) for number in range(options.many)]
    print(f"{options.preset}: {len(files[0])} bytes")
    with serving() as server:
        with Client(server.url) as client:
            seconds = upload_seconds(client, files)[3:]  # the first ones open connections and warm the kernels
        used = server.cpu_seconds
        seconds_of_many = asyncio.run(upload_all(server.url, many, options.at_once))
        used = server.cpu_seconds - used
    print_milliseconds("upload, acknowledged", [upload for upload, _ in seconds])
    print_milliseconds("upload to first answer", [answer for _, answer in seconds])
    show_many(seconds_of_many, used, golden_seconds(backbone, many, options.at_once), options.many)


if __name__ == "__main__":
    main()
