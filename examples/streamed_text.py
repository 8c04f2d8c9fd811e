"""Texts from AdaMix on a T5, streamed.

    .venv/bin/python examples/streamed_text.py             # with t5-small from the hub
    .venv/bin/python examples/streamed_text.py --short     # with the T5 of this repository, on few rows
    .venv/bin/python examples/streamed_text.py --backbone DIR --data DIR   # with a T5 and data of yours

An adapter learns to write a sentence about a restaurant from its facts, on data that AdaMix's paper uses too. The
server streams the sentences, several at a time. docs/examples/streamed_text.md explains the output.
"""

import argparse
import re
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common.headings import print_heading
from common.local_server import local_server
from common.rows import DATA, read_rows, write_rows
from common.trained_adapter import train_adapter
from peltier_client import Client

LOCAL = Path(__file__).resolve().parent / "backbones" / "t5-mini"
# The T5 of this repository is small and was pretrained for an hour: it needs more weights and larger steps than the
# defaults, which are for t5-small and larger.
FOR_LOCAL = ("--set", "bottleneck=192", "--set", "norms=true", "--set", "experts=2", "--learning-rate", 5e-3)
TASK = "describe"


def main() -> None:
    """The parts of the output, in their order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="train on few rows, with the T5 of this repository")
    parser.add_argument("--backbone", help="a T5: a directory or a hub id; t5-small by default")
    parser.add_argument("--data", type=Path, default=DATA / "e2e", help="train and validation.jsonl.gz")
    options = parser.parse_args()
    backbone = options.backbone or (str(LOCAL) if options.short else "t5-small")
    with tempfile.TemporaryDirectory(prefix="peltier-") as path:
        folder = Path(path)
        artifact = train(folder, backbone, options.data, short=options.short)
        with local_server(folder, backbone) as url, Client(url) as client:
            client.upload(artifact)
            facts = unseen_facts(options.data)
            stream_one_by_one(client, facts[:3])
            stream_at_once(client, facts[: 4 if options.short else 16])
            vary(client, facts[0])
            leave_early(client, facts[1])


def train(folder: Path, backbone: str, data: Path, *, short: bool) -> Path:
    """The artifact of the task."""
    print_heading("Train: AdaMix writes a sentence from facts")
    rows, validation = data / "train.jsonl.gz", data / "validation.jsonl.gz"
    if short:
        rows = write_rows(folder / "train.jsonl", read_rows(rows)[:64])
        validation = write_rows(folder / "validation.jsonl", read_rows(validation)[:16])
    adapter = train_adapter(
        folder / f"{TASK}.safetensors",
        *("--task", TASK, "--task-type", "text2text", "--preset", "adamix", "--backbone", backbone),
        *("--text-column", "meaning_representation", "--label-column", "human_reference"),
        *("--train", rows, "--validation", validation),
        *(FOR_LOCAL if Path(backbone).resolve() == LOCAL else ()),
        *("--epochs", 1 if short else 10, "--batch-size", 16, "--max-new-tokens", 40),
        "--no-merge-report",
    )
    size = f"{adapter.num_parameters:,} parameters, {adapter.percent:.1f} % of the backbone"
    print(f"  {size}; BLEU {adapter.metrics['bleu']:.1f}", flush=True)
    return adapter.file


def unseen_facts(data: Path) -> list[str]:
    """The distinct inputs of the validation rows, none of which the training rows have."""
    return list(dict.fromkeys(row["meaning_representation"] for row in read_rows(data / "validation.jsonl.gz")))


def stream_one_by_one(client: Client, facts: Sequence[str]) -> None:
    """Each piece with the milliseconds since the request."""
    print_heading("Stream: each piece as it is written, with the milliseconds since the request")
    for fact in facts:
        print(f"  {fact}\n   ", end="")
        start = time.perf_counter()
        for piece in client.stream(TASK, fact):
            print(f"{piece}[{1000 * (time.perf_counter() - start):.0f}]", end="", flush=True)
        print("\n")


def stream_at_once(client: Client, facts: Sequence[str]) -> None:
    """The texts one after another, then all together."""
    print_heading(f"Together: {len(facts)} texts at once share the decoding steps")
    for width in (1, len(facts)):
        start = time.perf_counter()
        with ThreadPoolExecutor(width) as pool:
            counts = list(pool.map(lambda fact: count_tokens(client, fact), facts))
        seconds = time.perf_counter() - start
        print(f"  {width:2} at a time: {sum(counts)} tokens in {seconds:.2f} s, {sum(counts) / seconds:.0f} a second")


def count_tokens(client: Client, fact: str) -> int:
    """The tokens of a text that is read to its end."""
    stream = client.stream(TASK, fact)
    for _ in stream:
        pass
    assert stream.predictions is not None, "the whole answer follows the last piece"
    return stream.predictions.usage.completion_tokens or 0


def vary(client: Client, fact: str) -> None:
    """Sampled texts; a seed gives its text again."""
    print_heading(f"Vary: sampled at temperature 0.8, {fact}")
    for seed in (1, 2, 1):
        print(f"  seed {seed}: {''.join(client.stream(TASK, fact, temperature=0.8, seed=seed))}")


def texts_in_progress(client: Client) -> int:
    """A gauge of the server's metrics."""
    (found,) = re.findall(r"^peltier_decode_rows (\S+)$", client.metrics(), flags=re.MULTILINE)
    return int(float(found))


def leave_early(client: Client, fact: str) -> None:
    """The reader closes a stream; then the server has no text in progress."""
    print_heading("Leave: after the first piece the reader closes the stream, and the server stops writing")
    with client.stream(TASK, fact) as stream:
        print(f"  read {next(iter(stream))!r}")
    deadline = time.monotonic() + 5
    while (left := texts_in_progress(client)) and time.monotonic() < deadline:
        time.sleep(0.05)
    print(f"  texts in progress: {left}")


if __name__ == "__main__":
    main()
