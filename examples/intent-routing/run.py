"""Intent routing for many tenants on one server: a split between two versions, and a roll back.

    .venv/bin/python examples/intent-routing/run.py            # two or three minutes on two idle cores
    .venv/bin/python examples/intent-routing/run.py --short    # few rows, for a first look and for the tests

A bank and an assistant train their own adapters, on the real requests of banking77 and clinc150. Ten shops without
adapters of their own use both. docs/examples/intent-routing.md explains the output.
"""

import argparse
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from peltier_client import AdapterNotFound, Client

DATA = Path(__file__).parents[1] / "data"
ADMIN_KEY = "an-administrators-key"  # of this server alone, which only this machine can reach
LEARNING_RATES = {"compacter": 5e-3, "adamix": 2e-3, "unipelt-apl": 2e-3}
NUM_VALIDATION = 500
NUM_SHOPS = 10

Rows = Sequence[dict[str, Any]]


def main() -> None:
    """The story, in its order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="train on few rows and send few requests")
    short = parser.parse_args().short
    with tempfile.TemporaryDirectory(prefix="peltier-") as name:
        folder = Path(name)
        say("Train: the bank a first adapter on little data and a better one, the assistant one of its own")
        first = train(folder, "banking77", "compacter", rows=200, epochs=1 if short else 4)
        better = train(folder, "banking77", "adamix", rows=400 if short else 1600, epochs=1 if short else 4)
        other = train(folder, "clinc150", "unipelt-apl", rows=400 if short else 1600, epochs=1 if short else 4)
        with server(folder) as url, ExitStack() as stack:
            admin = stack.enter_context(Client(url, ADMIN_KEY))
            bank, assistant, *shops = [
                stack.enter_context(Client(url, create_tenant(admin, tenant)))
                for tenant in ("bank", "assistant", *(f"shop-{number:02}" for number in range(1, NUM_SHOPS + 1)))
            ]
            publish(bank, assistant, first, other, shops[0])
            serve_everyone(bank, assistant, shops, num_requests=60 if short else 600)
            release(bank, better, num_requests=60 if short else 200)
            say("Audit: what the bank did")
            for record in list(admin.audit("bank"))[:6]:
                print(f"  {record.action:14} {record.subject:22} by {record.actor.split(':')[0]}")


def train(folder: Path, data: str, preset: str, *, rows: int, epochs: int) -> Path:
    """The artifact of an adapter."""
    output = folder / f"{data}-{preset}.safetensors"
    peltier(
        *("train", "--task", data, "--preset", preset, "--backbone", "minilm", "--labels", DATA / data / "labels.json"),
        *("--train", write(folder / "train.jsonl", read(data, "train")[:rows])),
        *("--validation", write(folder / "validation.jsonl", read(data, "validation")[:NUM_VALIDATION])),
        *("--learning-rate", LEARNING_RATES[preset], "--epochs", epochs, "--max-length", 64, "--dtype", "bfloat16"),
        *("--no-merge-report", "--directory", folder / "runs", "--output", output),
    )
    manifest = json.loads(peltier("inspect", output, "--json", shown=False))
    accuracy = manifest["manifest"]["training"]["metrics"]["accuracy"]
    size = f"{manifest['parameters']:,} parameters, {manifest['percent']:.2f} % of the backbone"
    print(f"  {data}, {preset}: {rows:,} rows, {size}, accuracy {accuracy:.3f}\n")
    return output


def create_tenant(admin: Client, name: str) -> str:
    """A new tenant's key."""
    admin.create_tenant(name, requests_per_second=2000.0)
    return admin.create_key("predict", "publish", tenant=name).key


def publish(bank: Client, assistant: Client, first: Path, other: Path, shop: Client) -> None:
    """Both adapters; other tenants may use them once they are public."""
    say("Publish: each tenant has its own names")
    for client, file in ((bank, first), (assistant, other)):
        version = client.upload(file, alias="production")
        print(f"  {version.tenant}: {version.name} version {version.version}, {version.size_bytes:,} bytes")
    try:
        shop.predict("bank:banking77", "where is my card?")
    except AdapterNotFound as error:
        print(f"  a shop, before the bank allows it: {error}")
    bank.set_public("banking77", True)
    assistant.set_public("clinc150", True)
    print(f"  a shop, afterwards: {shop.predict('bank:banking77', 'where is my card?')[0].label}")


def serve_everyone(bank: Client, assistant: Client, shops: Sequence[Client], num_requests: int) -> None:
    """Requests of all tenants at once, for both tasks."""
    say(f"Serve: {num_requests} requests of {2 + len(shops)} tenants at once")
    questions = {data: read(data, "validation") for data in ("banking77", "clinc150")}
    asked = []
    for number in range(num_requests):
        data = ("banking77", "clinc150")[number % 2]
        owner, owners_name = (bank, "bank") if data == "banking77" else (assistant, "assistant")
        client = (owner, *shops)[number // 2 % (1 + len(shops))]
        task = data if client is owner else f"{owners_name}:{data}"
        asked.append((client, task, data, questions[data][number]))

    def ask(question: tuple[Client, str, str, dict[str, Any]]) -> tuple[str, bool, int, int]:
        client, task, data, row = question
        found = client.predict(task, row["text"])
        return data, found[0].label == row["label_text"], found.body.batch.rows, found.body.batch.adapters

    begun = time.monotonic()
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(ask, asked))
    seconds = time.monotonic() - begun
    for data in questions:
        right = [is_right for name, is_right, *_ in answers if name == data]
        print(f"  {data}: {sum(right)} of {len(right)} intents are right")
    rows, adapters = (sum(one[place] for one in answers) / len(answers) for place in (2, 3))
    print(f"  {len(answers) / seconds:.0f} requests a second; a batch had {rows:.1f} rows of {adapters:.1f} adapters")


def release(bank: Client, better: Path, num_requests: int) -> None:
    """The better adapter: tried beside the first, given a share of the requests, then all, then taken back."""
    say("Release: version 2 is tried, gets a tenth of the requests, then all of them")
    version = bank.upload(better, name="banking77", alias="canary")
    rows = read("banking77", "validation")[:num_requests]
    for task in ("banking77@1", "banking77@canary"):
        found = bank.predict(task, [row["text"] for row in rows], top_k=1)
        right = sum(one.label == row["label_text"] for one, row in zip(found, rows, strict=True))
        print(f"  {task}: {right} of {len(rows)} right")
    for split in ({1: 0.9, version.version: 0.1}, {version.version: 1.0}):
        bank.set_alias("banking77", "production", split)
        shown = ", ".join(f"version {number}: {share:.0%}" for number, share in split.items())
        print(f"  production is {shown}; {answered(bank, rows)}")
    say("Roll back: the split of before, then version 1 alone")
    for _ in range(2):
        alias = bank.rollback_alias("banking77", "production")
        shown = ", ".join(f"version {number}: {share:.0%}" for number, share in alias.versions.items())
        print(f"  production is {shown}; {answered(bank, rows)}")


def answered(bank: Client, rows: Rows) -> str:
    """Which versions answered a request for each row under the bare name."""
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda row: bank.predict("banking77", row["text"], top_k=1).adapter.version, rows)
    counts = sorted(Counter(found).items())
    return "answered by " + ", ".join(f"version {number}: {count} times" for number, count in counts)


def read(data: str, part: str) -> Rows:
    """The rows of a set, in a fixed random order."""
    with gzip.open(DATA / data / f"{part}.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    random.Random(0).shuffle(rows)
    return rows


def write(path: Path, rows: Rows) -> Path:
    """A file of rows."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def say(sentence: str) -> None:
    """A heading."""
    print(f"\n== {sentence}\n", flush=True)


def peltier(*words: object, shown: bool = True) -> str:
    """What a command prints; this process ends with its error if it fails."""
    line = ["peltier", *map(str, words)]
    if shown:
        names = " ".join(Path(word).name if word.startswith("/") else word for word in line)
        print(textwrap.fill(names, 110, initial_indent="  $ ", subsequent_indent=6 * " ", break_on_hyphens=False))
    done = subprocess.run([sys.executable, "-m", "peltier_client", *line[1:]], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """The address of a server on a free port of this machine; it ends with the block."""
    log = folder / "server.log"
    words = ["serve", "--backbone", "minilm", "--store", str(folder / "store"), "--port", "0"]
    environment = {**os.environ, "PELTIER_ADMIN_KEY": ADMIN_KEY}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "peltier_client", *words], stdout=output, stderr=output, env=environment
        )
    try:
        while not (ready := re.search(r"ready on (http://\S+)", log.read_text())):
            if process.poll() is not None:
                sys.exit(log.read_text())
            time.sleep(0.1)
        yield ready[1]
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
