"""Intent routing for many tenants on one server: a split between two versions, and a roll back.

    .venv/bin/python examples/intent_routing.py            # two or three minutes on two idle cores
    .venv/bin/python examples/intent_routing.py --short    # few rows, for a first look and for the tests

A bank and an assistant train their own adapters, on the real requests of banking77 and clinc150. Ten shops without
adapters of their own use both. docs/examples/intent_routing.md explains the output.
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import mean

from common.headings import print_heading
from common.local_server import local_server
from common.rows import DATA, Row, read_rows, shuffled, write_rows
from common.trained_adapter import train_adapter
from peltier_client import AdapterNotFound, Alias, Client, Predictions

ADMIN_KEY = "an-administrators-key"  # of this server alone, which only this machine can reach
LEARNING_RATES = {"compacter": 5e-3, "adamix": 2e-3, "unipelt-apl": 2e-3}
NUM_SHOPS = 10


def main() -> None:
    """The story, in its order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="train on few rows and send few requests")
    short = parser.parse_args().short
    with tempfile.TemporaryDirectory(prefix="peltier-") as path, ExitStack() as stack:
        folder = Path(path)
        print_heading("Train: the bank a first adapter on little data and a better one, the assistant one of its own")
        few, size = (Size(64, 64, 1), Size(96, 64, 1)) if short else (Size(200, 500, 4), Size(1600, 500, 4))
        first = train(folder, "banking77", "compacter", few)
        better = train(folder, "banking77", "adamix", size)
        other = train(folder, "clinc150", "unipelt-apl", size)

        url = stack.enter_context(local_server(folder, "minilm", ADMIN_KEY))
        admin = stack.enter_context(Client(url, ADMIN_KEY))
        names = ["bank", "assistant", *(f"shop-{number:02}" for number in range(1, NUM_SHOPS + 1))]
        keys = [create_tenant(admin, name) for name in names]
        bank, assistant, *shops = [stack.enter_context(Client(url, key)) for key in keys]
        publish(bank, assistant, first, other, shops[0])
        serve_everyone(bank, assistant, shops, num_requests=60 if short else 600)
        release(bank, better, num_requests=60 if short else 200)
        roll_back(bank, num_requests=60 if short else 200)
        audit(admin)


@dataclass(frozen=True)
class Size:
    """The numbers of rows for training and for validation, and of epochs."""

    num_rows: int
    num_validation: int
    epochs: int


def train(folder: Path, data: str, preset: str, size: Size) -> Path:
    """The artifact of an adapter."""
    adapter = train_adapter(
        folder / f"{data}-{preset}.safetensors",
        *("--task", data, "--preset", preset, "--backbone", "minilm", "--labels", DATA / data / "labels.json"),
        *("--train", write_rows(folder / "train.jsonl", read(data, "train")[: size.num_rows])),
        *("--validation", write_rows(folder / "validation.jsonl", read(data, "validation")[: size.num_validation])),
        *("--learning-rate", LEARNING_RATES[preset], "--epochs", size.epochs, "--max-length", 64),
        "--no-merge-report",
    )
    share = f"{adapter.num_parameters:,} parameters, {adapter.percent:.2f} % of the backbone"
    print(
        f"  {data}, {preset}: {size.num_rows:,} rows, {share}, accuracy {adapter.metrics['accuracy']:.3f}\n", flush=True
    )
    return adapter.file


def read(data: str, part: str) -> list[Row]:
    """The rows of a set, in a random order."""
    return shuffled(read_rows(DATA / data / f"{part}.jsonl.gz"))


def create_tenant(admin: Client, name: str) -> str:
    """A new tenant's key."""
    admin.create_tenant(name, requests_per_second=2000.0)
    return admin.create_key("predict", "publish", tenant=name).key


def publish(bank: Client, assistant: Client, first: Path, other: Path, shop: Client) -> None:
    """Both adapters; other tenants may use them once they are public."""
    print_heading("Publish: each tenant has its own names")
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


@dataclass(frozen=True)
class Request:
    """A row's text for a task, from one tenant's client."""

    client: Client
    task: str
    row: Row

    def send(self) -> Predictions:
        """The answer."""
        return self.client.predict(self.task, self.row["text"])


def serve_everyone(bank: Client, assistant: Client, shops: Sequence[Client], num_requests: int) -> None:
    """Requests of all tenants at once, for both tasks in turn."""
    print_heading(f"Serve: {num_requests} requests of {2 + len(shops)} tenants at once")
    callers = {
        "banking77": [(bank, "banking77"), *((shop, "bank:banking77") for shop in shops)],
        "clinc150": [(assistant, "clinc150"), *((shop, "assistant:clinc150") for shop in shops)],
    }
    rows = {data: read(data, "validation") for data in callers}
    requests = list[Request]()
    for number in range(num_requests):
        data = list(callers)[number % 2]
        client, task = callers[data][number // 2 % len(callers[data])]
        requests.append(Request(client, task, rows[data][number]))

    start = time.monotonic()
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(Request.send, requests))
    seconds = time.monotonic() - start
    for place, data in enumerate(callers):
        labels = [request.row["label_text"] for request in requests[place::2]]
        num_right = sum(answer[0].label == label for answer, label in zip(answers[place::2], labels, strict=True))
        print(f"  {data}: {num_right} of {len(labels)} intents are right")
    batches = [answer.body.batch for answer in answers]
    size = (
        f"{mean(batch.rows for batch in batches):.1f} rows of {mean(batch.adapters for batch in batches):.1f} adapters"
    )
    print(f"  {len(answers) / seconds:.0f} requests a second; a batch had {size}")


def release(bank: Client, better: Path, num_requests: int) -> None:
    """The better adapter: tried beside the first, given a share of the requests, then all."""
    print_heading("Release: version 2 is tried, gets a tenth of the requests, then all of them")
    version = bank.upload(better, name="banking77", alias="canary").version
    rows = read("banking77", "validation")[:num_requests]
    for task in ("banking77@1", "banking77@canary"):
        predictions = bank.predict(task, [row["text"] for row in rows], top_k=1)
        num_right = sum(one.label == row["label_text"] for one, row in zip(predictions, rows, strict=True))
        print(f"  {task}: {num_right} of {len(rows)} right")
    for split in ({1: 0.9, version: 0.1}, {version: 1.0}):
        print_production(bank, bank.set_alias("banking77", "production", split), rows)


def roll_back(bank: Client, num_requests: int) -> None:
    """Both changes of the alias, the last first."""
    print_heading("Roll back: the split of before, then version 1 alone")
    rows = read("banking77", "validation")[:num_requests]
    for _ in range(2):
        print_production(bank, bank.rollback_alias("banking77", "production"), rows)


def print_production(bank: Client, production: Alias, rows: Sequence[Row]) -> None:
    """The versions of the alias, and which of them answered a request for each row under the bare name."""
    with ThreadPoolExecutor(8) as pool:
        versions = pool.map(lambda row: bank.predict("banking77", row["text"], top_k=1).adapter.version, rows)
        counts = sorted(Counter(versions).items())
    split = ", ".join(f"version {number}: {share:.0%}" for number, share in production.versions.items())
    answers = ", ".join(f"version {number}: {count} times" for number, count in counts)
    print(f"  production is {split}; answered by {answers}")


def audit(admin: Client) -> None:
    """The last changes that the bank made, newest first."""
    print_heading("Audit: what the bank did")
    for record in islice(admin.audit("bank"), 6):
        print(f"  {record.action:14} {record.subject:22} by {record.actor.split(':')[0]}")


if __name__ == "__main__":
    main()
