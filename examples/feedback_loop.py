"""The loop of a task: few rows, feedback, a better version that proves itself, and a spoilt one that does not.

    .venv/bin/python examples/feedback_loop.py            # about three minutes on two idle cores
    .venv/bin/python examples/feedback_loop.py --short    # fewer intents and rows, for a first look and for the tests

A bank's service desk routes requests by intent. It begins with 50 rows, keeps what its staff corrects, trains again on
the server, and lets the server decide about each new version. docs/examples/feedback_loop.md explains the output.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from common.headings import print_heading
from common.local_server import local_server
from common.rows import DATA, Row, read_rows, shuffled
from peltier_client import Client, Rollout, Training

TASK, ALIAS = "intents", "production"
INTENTS = (
    "card_arrival", "card_delivery_estimate", "pending_card_payment", "declined_card_payment",
    "card_payment_fee_charged", "card_payment_wrong_exchange_rate", "card_not_working", "card_swallowed",
    "lost_or_stolen_card", "card_linking",
)  # fmt: skip
FIRST_ROWS = 50


@dataclass(frozen=True)
class Size:
    """The numbers of intents, of corrected requests before the second training, and of requests for one decision at
    most; and the epochs of a training."""

    num_intents: int
    num_corrected: int
    max_requests: int
    epochs: int


class Desk:
    """The service desk: it sends requests in turn, and its staff knows the right intent of each."""

    def __init__(self, client: Client, rows: Sequence[Row], size: Size) -> None:
        self.client = client
        self.size = size
        self._rows: Iterator[Row] = iter(rows)

    def route(self) -> tuple[Row, str, str]:
        """The next request: its row, the id of its answer, and the intent that was answered."""
        row = next(self._rows)
        answer = self.client.predict(TASK, row["text"])
        return row, answer.request_id, answer[0].label or ""

    def train(self, rows: Sequence[Row], alias: str | None = None) -> Training:
        """Trains a version on the server, and waits until it is published."""
        started = time.monotonic()
        settings = {"epochs": self.size.epochs, "learning_rate": 5e-3, "batch_size": 16, "max_length": 64}
        training = self.client.train(TASK, rows, preset="compacter", settings=settings, seed=0, alias=alias)
        accuracy = (training.metrics or {}).get("accuracy", 0.0)
        seconds = time.monotonic() - started
        print(
            f"  {len(rows)} rows -> {training.adapter}: validation accuracy {accuracy:.2f}, {seconds:.0f} s", flush=True
        )
        return training

    def decide(self, training: Training) -> Rollout:
        """Lets the trained version shadow, and tells the right intent of each request, until the server decides."""
        candidate = int(str(training.adapter).rpartition("@")[2])
        found = self.client.start_rollout(TASK, ALIAS, candidate, shadow=True, max_hours=1)
        print(f"  version {candidate} shadows version {found.incumbent}", flush=True)
        for _ in range(self.size.max_requests):
            row, request_id, _ = self.route()
            if self.client.feedback(request_id, label=row["label"]).state != "running":
                break
        found = self.client.rollout(TASK, ALIAS) or found
        num_requests = found.counts["incumbent"]["answers"]
        print(f"  {found.state} after {num_requests} requests: {found.reason}")
        for name in ("incumbent", "candidate", "accuracy", "disagreement"):
            shown = ", ".join(f"{value} {what}" for what, value in found.counts.get(name, {}).items())
            print(f"    {name}: {shown}")
        return found


def main() -> None:
    """The story, in its order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="use fewer intents and rows")
    short = parser.parse_args().short
    size = Size(6, 150, 300, 6) if short else Size(len(INTENTS), 400, 600, 8)
    first, corrected, requests = split_rows(size)
    with tempfile.TemporaryDirectory(prefix="peltier-") as path, ExitStack() as stack:
        url = stack.enter_context(local_server(Path(path), "minilm", "", "--worker"))
        client = stack.enter_context(Client(url, timeout=60))
        run(Desk(client, [*corrected, *requests], size), first)


def run(desk: Desk, first: Sequence[Row]) -> None:
    """The five parts."""
    print_heading("Begin: 50 rows become the first version, which answers")
    desk.train(first, ALIAS)

    print_heading("Serve: the staff corrects what was routed wrongly, and the desk keeps the texts")
    kept, num_right = [*first], 0
    for _ in range(desk.size.num_corrected):
        row, _, intent = desk.route()
        num_right += intent == row["label"]
        kept.append(row)
    print(f"  {num_right} of {desk.size.num_corrected} requests were routed rightly; {len(kept)} rows are kept")

    print_heading("Improve: a second version is trained on them, shadows, and is promoted")
    better = desk.decide(desk.train(kept))

    print_heading("Meet a spoilt data set: half of its labels are shifted by an import that went wrong")
    worse = desk.decide(desk.train(spoilt(kept)))

    print_heading("Look back: what the audit log keeps")
    for record in desk.client.audit():
        if record.action in ("start_rollout", "promote_candidate", "roll_back_candidate"):
            reason = record.detail.get("reason")
            print(f"  {record.actor}: {record.action} of {record.subject}{f', {reason}' if reason else ''}")
    meaning = next(alias for alias in desk.client.aliases(TASK) if alias.alias == ALIAS)
    assert (better.state, worse.state) == ("promoted", "rolled_back"), (better, worse)
    print(f"  {TASK}@{ALIAS} means version {', '.join(map(str, meaning.versions))}")


def split_rows(size: Size) -> tuple[list[Row], list[Row], list[Row]]:
    """The first rows, those that are corrected, and the requests after that; as text and intent."""
    wanted = INTENTS[: size.num_intents]
    rows = shuffled(
        {"text": row["text"], "label": row["label_text"]}
        for part in ("train", "validation")
        for row in read_rows(DATA / "banking77" / f"{part}.jsonl.gz")
        if row["label_text"] in wanted
    )
    end = FIRST_ROWS + size.num_corrected
    # Traffic repeats itself: the rest of the rows comes again in another order.
    rest = rows[end:]
    again = random.Random(1).sample(rest, len(rest))
    return rows[:FIRST_ROWS], rows[FIRST_ROWS:end], [*rest, *again]


def spoilt(rows: Sequence[Row]) -> list[Row]:
    """The rows with every second label shifted to the next intent."""
    labels = sorted({row["label"] for row in rows})
    following = dict(zip(labels, labels[1:] + labels[:1], strict=True))
    return [row | {"label": following[row["label"]]} if place % 2 else row for place, row in enumerate(rows)]


if __name__ == "__main__":
    main()
