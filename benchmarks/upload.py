"""From an upload to the first answer over HTTP, and one load from the store, against a real server.

    .venv/bin/python benchmarks/upload.py [--preset compacter]

An upload is validated, re-proves its golden examples, is stored durably and registered before it is acknowledged; the
first answer follows it. A load reads an artifact from the store into the device's banks, as the server does for an
adapter that is not resident.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from adapters import INPUTS, make_bytes
from peltier_adapters.artifact import read_artifact
from peltier_adapters.bank import Banks
from peltier_adapters.blobs import Blobs
from peltier_backbone.load import load_backbone
from peltier_client import Client

PORT = 8123


def serve(store: Path) -> subprocess.Popen[bytes]:
    """A server of its own on loopback, one thread."""
    command = [str(Path(sys.executable).parent / "peltier"), "serve", "--backbone", "minilm"]
    command += ["--store", str(store), "--port", str(PORT), "--threads", "1"]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


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


async def load_seconds(directory: Path, files: list[bytes]) -> list[float]:
    """Store to device banks, one after the other."""
    backbone, blobs = load_backbone("minilm"), Blobs.open(directory)
    banks, seconds = Banks(backbone), []
    for digest in [await blobs.put(data) for data in files]:
        start = time.perf_counter()
        banks.add(read_artifact(await blobs.get(digest), backbone))
        seconds.append(time.perf_counter() - start)
    return seconds


def show(what: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    p90 = ordered[int(0.9 * (len(ordered) - 1))]
    print(f"{what:28} median {1e3 * statistics.median(ordered):7.2f} ms   p90 {1e3 * p90:7.2f} ms   n {len(ordered)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="compacter")
    parser.add_argument("--count", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    backbone = load_backbone("minilm")
    files = [make_bytes(backbone, options.preset, number) for number in range(options.count)]
    print(f"{options.preset}: {len(files[0])} bytes")
    with tempfile.TemporaryDirectory() as directory:
        server = serve(Path(directory) / "store")
        try:
            with Client(f"http://127.0.0.1:{PORT}") as client:
                while not _is_ready(client):
                    time.sleep(0.2)
                seconds = upload_seconds(client, files)[3:]  # the first ones open connections and warm the kernels
        finally:
            server.terminate()
            server.wait()
        show("upload, acknowledged", [upload for upload, _ in seconds])
        show("upload to first answer", [answer for _, answer in seconds])
        show("load from the store", asyncio.run(load_seconds(Path(directory) / "blobs", files))[3:])


def _is_ready(client: Client) -> bool:
    try:
        return client.ready()
    except Exception:  # not listening yet
        return False


if __name__ == "__main__":
    main()
