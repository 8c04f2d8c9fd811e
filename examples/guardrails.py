"""Guardrails: many small tasks on one text, asked by one request.

    .venv/bin/python examples/guardrails.py            # about two minutes on two idle cores
    .venv/bin/python examples/guardrails.py --short    # three guards on few rows, for a first look and for the tests

A bank's assistant asks five questions about each text before it answers: yes or no, each from an adapter of its own.
All share the lower blocks of the backbone. docs/examples/guardrails.md explains the output.
"""

import argparse
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from common.headings import print_heading
from common.local_server import local_server
from common.rows import DATA, Row, read_rows, shuffled, write_rows
from common.trained_adapter import train_adapter
from peltier_client import Client, PeltierError, Prediction, Predictions

# The guards change only the last two of minilm's six blocks; the first four are computed once for all guards of a text.
SHARED_BLOCKS = 4

# The intents of clinc150 that are about banking. All of banking77 is.
BANKING = (
    ".*account.*|routing|pin_change|interest_rate|order_checks|spending_history|transactions|transfer|report_.*|apr"
    "|.*card.*|expiration_date|international_fees|.*bill.*|.*credit_.*|balance|min_payment|.*rewards.*"
    "|application_status|direct_deposit"
)
# Each guard is trained to say yes to the texts whose intent matches its pattern.
GUARDS = {
    "guard.off-topic": f"(?!({BANKING})$).*",
    "guard.incident": (
        "compromised_card|lost_or_stolen_.*|.*_not_recognised|report_fraud|report_lost_card|freeze_account"
    ),
    "guard.money": ".*transfer.*|top_up_.*|.*_top_up|topping_up_.*|pay_bill|request_refund|receiving_money",
    "guard.identity": (
        ".*verify_.*identity|verify_source_of_funds|edit_personal_details"
        "|passcode_forgotten|pin_blocked|change_pin|pin_change"
    ),
    "guard.smalltalk": (
        "are_you_a_bot|what_is_your_name|who_.*|how_old_are_you|where_are_you_from|do_you_have_pets"
        "|what_are_your_hobbies|meaning_of_life|tell_joke|fun_fact|greeting|goodbye|thank_you"
        "|what_can_i_ask_you|change_ai_name"
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


def main() -> None:
    """The parts of the output, in their order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="train three guards on few rows")
    short = parser.parse_args().short
    names = list(GUARDS)[: 3 if short else None]
    with tempfile.TemporaryDirectory(prefix="peltier-") as path:
        folder = Path(path)
        with local_server(folder, "minilm") as url, Client(url) as client:
            print_heading("Train: one small adapter for each guard")
            for name in names:
                client.upload(train_guard(folder, name, num_rows=64 if short else 400))
            ask_and_decide(client, num_texts=6 if short else 12)
            compare_costs(client, names, num_texts=10 if short else 100)
            change_the_group(client, names)


def train_guard(folder: Path, name: str, num_rows: int) -> Path:
    """The artifact of a guard, trained on as many texts with yes as with no, and measured on as many others."""
    adapter = train_adapter(
        folder / f"{name}.safetensors",
        *("--task", name, "--preset", "compacter", "--set", f"first_block={SHARED_BLOCKS}"),
        *("--train", write_rows(folder / "train.jsonl", labelled(name, read_both("train"), num_rows))),
        *("--validation", write_rows(folder / "validation.jsonl", labelled(name, read_both("validation"), num_rows))),
        *("--labels", "no,yes", "--epochs", 2, "--batch-size", 16, "--learning-rate", 5e-3, "--max-length", 64),
        *("--dtype", "bfloat16"),
    )
    print(f"  {name}: {adapter.num_parameters:,} parameters, accuracy {adapter.metrics['accuracy']:.3f}\n", flush=True)
    return adapter.file


def read_both(part: str) -> list[Row]:
    """The rows of both sets, in a random order; `data` names the set."""
    sets = ("banking77", "clinc150")
    return shuffled(row | {"data": data} for data in sets for row in read_rows(DATA / data / f"{part}.jsonl.gz"))


def labelled(guard: str, rows: Sequence[Row], max_rows: int) -> list[Row]:
    """At most `max_rows` rows, as many with the label 1 (yes) as with 0 (no)."""
    sides = [[row for row in rows if is_yes(guard, row) is wanted] for wanted in (False, True)]
    half = min(max_rows // 2, *map(len, sides))
    return shuffled({"text": row["text"], "label": label} for label, side in enumerate(sides) for row in side[:half])


def is_yes(guard: str, row: Row) -> bool:
    """Whether the guard is to say yes to the row's text, by its intent."""
    if guard == "guard.off-topic" and row["data"] == "banking77":
        return False
    return re.fullmatch(GUARDS[guard], row["label_text"]) is not None


def ask_and_decide(client: Client, num_texts: int) -> None:
    """Asks all guards about texts on which none was trained, and applies the policy."""
    print_heading("Ask: one request for each text, `guard.*` names all guards")
    for row in read_both("validation")[:num_texts]:
        answers = client.predict_tasks("guard.*", row["text"], top_k=1)
        yes = guards_with_yes(answers)
        guards = [f"{name.removeprefix('guard.')} {answer.score:.2f}" for name, answer in yes.items()]
        decision = next((step for name, step in POLICY.items() if name in yes), "answer")
        text = " ".join(row["text"].split())
        print(f"  {text}\n    guards: {', '.join(guards) or 'nothing'} -> {decision}  (intent: {row['label_text']})")


def guards_with_yes(answers: Mapping[str, Predictions | PeltierError]) -> dict[str, Prediction]:
    """The guards that say yes. Raises the error of a guard that failed: it has not said no."""
    yes = {}
    for name, answer in answers.items():
        if isinstance(answer, PeltierError):
            raise answer
        if answer[0].label == "yes":
            yes[name] = answer[0]
    return yes


def compare_costs(client: Client, names: Sequence[str], num_texts: int) -> None:
    """The time of one request with all guards, of as many single requests, and of one guard alone."""
    print_heading(f"Cost: the median of {num_texts} texts, over HTTP on this machine")
    texts = [row["text"] for row in read_both("validation")[:num_texts]]
    ways: Mapping[str, Callable[[str], object]] = {
        "one guard": lambda text: client.predict(names[0], text),
        f"{len(names)} guards, one request": lambda text: client.predict_tasks("guard.*", text),
        f"{len(names)} guards, one after another": lambda text: [client.predict(name, text) for name in names],
    }
    for way, ask in ways.items():
        seconds = []
        for text in texts:
            start = time.perf_counter()
            ask(text)
            seconds.append(time.perf_counter() - start)
        print(f"  {way + ':':32} {1000 * statistics.median(seconds):6.1f} ms")


def change_the_group(client: Client, names: Sequence[str]) -> None:
    """Callers ask `guard.*`, so they need no change when a guard comes or goes."""
    print_heading("Change: take one guard away; the callers stay as they are")
    text = "how do i reset the pin of my card?"
    print(f"  {len(client.predict_tasks('guard.*', text))} guards answer; {names[-1]} is deleted")
    client.delete(names[-1])
    left = client.predict_tasks("guard.*", text)
    print(f"  {len(left)} guards answer: {', '.join(left)}")


if __name__ == "__main__":
    main()
