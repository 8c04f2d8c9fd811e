"""Texts from AdaMix on a T5, streamed.

    .venv/bin/python examples/streamed-text/run.py             # with t5-small from the hub
    .venv/bin/python examples/streamed-text/run.py --short     # with the T5 of this repository, on few rows
    .venv/bin/python examples/streamed-text/run.py --backbone DIR --data DIR   # with a T5 and data of yours

An adapter learns to write a sentence about a restaurant from its facts, as in AdaMix's paper. The server streams its
texts, several at a time. docs/examples/streamed-text.md explains the output.
"""

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from peltier_client import Client

EXAMPLES = Path(__file__).parents[1]
LOCAL = EXAMPLES / "backbones" / "t5-mini"
# The T5 of this repository is small and was pretrained for an hour: it needs more weights and larger steps than the
# defaults, which are for t5-small and larger.
FOR_LOCAL = ("--set", "bottleneck=192", "--set", "norms=true", "--set", "experts=2", "--learning-rate", 5e-3)
TASK = "describe"


def main() -> None:
    """The story, in its order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="train on few rows, with the T5 of this repository")
    parser.add_argument("--backbone", help="a T5: a directory or a hub id; t5-small by default")
    parser.add_argument("--data", type=Path, default=EXAMPLES / "data" / "e2e", help="train and validation.jsonl.gz")
    options = parser.parse_args()
    backbone = options.backbone or (str(LOCAL) if options.short else "t5-small")
    facts = unseen_facts(options.data)
    with tempfile.TemporaryDirectory(prefix="peltier-") as folder:
        artifact = train(Path(folder), backbone, options.data, short=options.short)
        with ready_server(Path(folder), backbone) as client:
            client.upload(artifact)
            stream_one_by_one(client, facts[:3])
            stream_at_once(client, facts[: 4 if options.short else 16])
            vary(client, facts[0])
            leave_early(client, facts[1])


def train(folder: Path, backbone: str, data: Path, *, short: bool) -> Path:
    """The artifact of the task."""
    say("Train: AdaMix writes a sentence from facts")
    source = data / "train.jsonl.gz"
    if short:
        source = folder / "train.jsonl"
        with gzip.open(data / "train.jsonl.gz", "rt") as lines:
            source.write_text("".join(line for _, line in zip(range(200), lines, strict=False)))
    output = folder / f"{TASK}.safetensors"
    is_local = Path(backbone).resolve() == LOCAL
    peltier(
        *("train", "--task", TASK, "--task-type", "text2text", "--preset", "adamix", "--backbone", backbone),
        *("--text-column", "meaning_representation", "--label-column", "human_reference"),
        *("--train", source, "--validation", data / "validation.jsonl.gz", *(FOR_LOCAL if is_local else ())),
        *("--epochs", 1 if short else 10, "--batch-size", 16, "--max-new-tokens", 40, "--dtype", "bfloat16"),
        *("--no-merge-report", "--directory", folder / "runs", "--output", output),
    )
    manifest = json.loads(peltier("inspect", output, "--json", shown=False))
    bleu = manifest["manifest"]["training"]["metrics"]["bleu"]
    size = f"{manifest['parameters']:,} parameters, {manifest['percent']:.1f} % of the backbone"
    print(f"  {size}; BLEU {bleu:.1f}", flush=True)
    return output


def unseen_facts(data: Path) -> list[str]:
    """The distinct inputs of the validation rows."""
    with gzip.open(data / "validation.jsonl.gz", "rt") as lines:
        return list(dict.fromkeys(json.loads(line)["meaning_representation"] for line in lines))


def stream_one_by_one(client: Client, facts: Sequence[str]) -> None:
    """Each piece with the milliseconds since the request."""
    say("Stream: each piece as it is written, with the milliseconds since the request")
    for fact in facts:
        print(f"  {fact}\n   ", end="")
        begun = time.perf_counter()
        for piece in client.stream(TASK, fact):
            print(f"{piece}[{1000 * (time.perf_counter() - begun):.0f}]", end="", flush=True)
        print("\n")


def stream_at_once(client: Client, facts: Sequence[str]) -> None:
    """Texts that are written together take little longer than one."""
    say(f"Together: {len(facts)} texts at once share the decoding steps")
    for width in (1, len(facts)):
        begun = time.perf_counter()
        with ThreadPoolExecutor(width) as pool:
            counts = list(pool.map(lambda fact: count_tokens(client, fact), facts))
        seconds = time.perf_counter() - begun
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
    say(f"Vary: sampled at temperature 0.8, {fact}")
    for seed in (1, 2, 1):
        print(f"  seed {seed}: {''.join(client.stream(TASK, fact, temperature=0.8, seed=seed))}")


def leave_early(client: Client, fact: str) -> None:
    """A reader who leaves ends the text on the server too."""
    say("Leave: after the first piece the reader closes the stream, and the server stops writing")
    with client.stream(TASK, fact) as stream:
        print(f"  read {next(iter(stream))!r}")
    deadline = time.monotonic() + 5
    while (left := client.live().texts.rows) and time.monotonic() < deadline:
        time.sleep(0.05)
    print(f"  texts in progress: {left}")


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
def ready_server(folder: Path, backbone: str) -> Iterator[Client]:
    """A client of a server on a free port of this machine; it ends with the block."""
    log = folder / "server.log"
    words = ["serve", "--backbone", backbone, "--store", str(folder / "store"), "--port", "0"]
    with log.open("w") as output:
        process = subprocess.Popen([sys.executable, "-m", "peltier_client", *words], stdout=output, stderr=output)
    try:
        while not (ready := re.search(r"ready on (http://\S+)", log.read_text())):
            if process.poll() is not None:
                sys.exit(log.read_text())
            time.sleep(0.1)
        with Client(ready[1]) as client:
            yield client
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
