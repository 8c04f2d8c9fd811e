"""Guardrails: many small tasks on one text, asked by one request.

    .venv/bin/python examples/guardrails/run.py            # about two minutes on two idle cores
    .venv/bin/python examples/guardrails/run.py --short    # three guards on few rows, for a first look and the tests

A bank's assistant asks five questions about each text before it answers: yes or no, each from an adapter of its own.
All share the lower blocks of the backbone. docs/examples/guardrails.md explains the output.
"""

import argparse
import gzip
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peltier_client import Client, PeltierError

DATA = Path(__file__).parents[1] / "data"
# Of the six blocks of minilm. The guards act in the others, so these are computed once for all guards of a text.
SHARED_BLOCKS = 4
NUM_VALIDATION = 400

# Each guard answers yes to texts whose intent matches one of its patterns.
GUARDS = {
    # All of banking77 is about banking; these are the intents of clinc150 that are not.
    "guard.off-topic": (
        r"(?!(.*account.*|routing|pin_change|interest_rate|order_checks|spending_history|transactions|transfer|report_.*"
        r"|apr|.*card.*|expiration_date|international_fees|.*bill.*|.*credit_.*|balance|min_payment|.*rewards.*"
        r"|application_status|direct_deposit)$).*",
    ),
    "guard.incident": (
        *("compromised_card", "lost_or_stolen_.*", ".*_not_recognised"),
        *("report_fraud", "report_lost_card", "freeze_account"),
    ),
    "guard.money": (
        *(".*transfer.*", "top_up_.*", ".*_top_up", "topping_up_.*"),
        *("pay_bill", "request_refund", "receiving_money"),
    ),
    "guard.identity": (
        *(".*verify_.*identity", "verify_source_of_funds", "edit_personal_details"),
        *("passcode_forgotten", "pin_blocked", "change_pin", "pin_change"),
    ),
    "guard.smalltalk": (
        *("are_you_a_bot", "what_is_your_name", "who_.*", "how_old_are_you", "where_are_you_from", "do_you_have_pets"),
        *("what_are_your_hobbies", "meaning_of_life", "tell_joke", "fun_fact", "greeting", "goodbye", "thank_you"),
        *("what_can_i_ask_you", "change_ai_name"),
    ),
}
# What the assistant does: the first guard in this order that says yes decides.
POLICY = {
    "guard.incident": "pass to the fraud team at once",
    "guard.smalltalk": "answer from the script",
    "guard.off-topic": "decline: this assistant knows about banking only",
    "guard.identity": "ask for a proof of identity first",
    "guard.money": "answer, and confirm before money moves",
}

Row = dict[str, Any]


def main() -> None:
    """The story, in its order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="train three guards on few rows")
    short = parser.parse_args().short
    names = list(GUARDS)[: 3 if short else None]
    with tempfile.TemporaryDirectory(prefix="peltier-") as folder, ready_server(Path(folder)) as client:
        say("Train: one small adapter for each guard")
        for name in names:
            client.upload(train(Path(folder), name, rows=120 if short else 400))
        decide(client, num_texts=6 if short else 12)
        compare_costs(client, names, num_texts=10 if short else 100)
        change_the_group(client, names)


def train(folder: Path, name: str, rows: int) -> Path:
    """The artifact of a guard, trained on as many texts with yes as with no."""

    def is_yes(row: Row) -> bool:
        if name == "guard.off-topic" and row["data"] == "banking77":
            return False
        return re.fullmatch("|".join(GUARDS[name]), row["label_text"]) is not None

    output = folder / f"{name}.safetensors"
    peltier(
        *("train", "--task", name, "--preset", "compacter", "--set", f"first_block={SHARED_BLOCKS}"),
        *("--train", write(folder / "train.jsonl", balanced(read("train"), is_yes, rows))),
        *("--validation", write(folder / "validation.jsonl", balanced(read("validation"), is_yes, NUM_VALIDATION))),
        *("--labels", "no,yes", "--epochs", 2, "--batch-size", 16, "--learning-rate", 5e-3, "--max-length", 64),
        *("--dtype", "bfloat16", "--directory", folder / "runs", "--output", output),
    )
    manifest = json.loads(peltier("inspect", output, "--json", shown=False))
    accuracy = manifest["manifest"]["training"]["metrics"]["accuracy"]
    print(f"  {name}: {manifest['parameters']:,} parameters, accuracy {accuracy:.3f}\n", flush=True)
    return output


def balanced(rows: Sequence[Row], is_yes: Callable[[Row], bool], number: int) -> list[Row]:
    """`number` rows at most, as many with yes as with no, labelled 1 and 0."""
    sides = [[row for row in rows if is_yes(row) is wanted] for wanted in (False, True)]
    half = min(number // 2, *map(len, sides))
    chosen = [{"text": row["text"], "label": label} for label, side in enumerate(sides) for row in side[:half]]
    random.Random(0).shuffle(chosen)
    return chosen


def decide(client: Client, num_texts: int) -> None:
    """Asks all guards about texts that they have not seen, and applies the policy."""
    say("Ask: one request for each text, `guard.*` names all guards")
    for row in read("validation")[:num_texts]:
        answers = client.predict_tasks("guard.*", row["text"], top_k=1)
        yes = {
            name: found[0].score
            for name, found in answers.items()
            if not isinstance(found, PeltierError) and found[0].label == "yes"
        }
        said = ", ".join(f"{name.removeprefix('guard.')} {score:.2f}" for name, score in yes.items()) or "nothing"
        decision = next((step for name, step in POLICY.items() if name in yes), "answer")
        text = " ".join(row["text"].split())
        print(f"  {text}\n    guards: {said} -> {decision}  (intent: {row['label_text']})")


def compare_costs(client: Client, names: Sequence[str], num_texts: int) -> None:
    """The time of one request with all guards, of as many single requests, and of one guard alone."""
    say(f"Cost: the median of {num_texts} texts, over HTTP on this machine")
    texts = [row["text"] for row in read("validation")[:num_texts]]
    ways: Mapping[str, Callable[[str], object]] = {
        "one guard": lambda text: client.predict(names[0], text),
        f"{len(names)} guards, one request": lambda text: client.predict_tasks("guard.*", text),
        f"{len(names)} guards, one after another": lambda text: [client.predict(name, text) for name in names],
    }
    for way, ask in ways.items():
        seconds = []
        for text in texts:
            begun = time.perf_counter()
            ask(text)
            seconds.append(time.perf_counter() - begun)
        print(f"  {way + ':':32} {1000 * statistics.median(seconds):6.1f} ms")


def change_the_group(client: Client, names: Sequence[str]) -> None:
    """Callers ask `guard.*`, so they need no change when a guard comes or goes."""
    say("Change: take one guard away; the callers stay as they are")
    text = "how do i reset the pin of my card?"
    print(f"  {len(client.predict_tasks('guard.*', text))} guards answer; {names[-1]} is deleted")
    client.delete(names[-1])
    left = client.predict_tasks("guard.*", text)
    print(f"  {len(left)} guards answer: {', '.join(left)}")


def read(part: str) -> list[Row]:
    """The rows of both sets, in a fixed random order."""
    rows = []
    for data in ("banking77", "clinc150"):
        with gzip.open(DATA / data / f"{part}.jsonl.gz", "rt") as lines:
            rows += [json.loads(line) | {"data": data} for line in lines]
    random.Random(0).shuffle(rows)
    return rows


def write(path: Path, rows: Sequence[Row]) -> Path:
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
def ready_server(folder: Path) -> Iterator[Client]:
    """A client of a server on a free port of this machine; it ends with the block."""
    log = folder / "server.log"
    words = ["serve", "--backbone", "minilm", "--store", str(folder / "store"), "--port", "0"]
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
