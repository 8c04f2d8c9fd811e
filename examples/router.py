"""A router: eight classifiers on one text, asked by one request, which decide who answers it.

    .venv/bin/python examples/router.py            # about eight minutes on two idle cores
    .venv/bin/python examples/router.py --short    # three of them on few rows, for a first look and for the tests

A company has a bank's assistant, a personal assistant and a guide to restaurants behind one address. A router reads
each text first: what it is about, the intent, whether it reports an incident, whether it holds personal data, and so
on. Each question has a LoRA adapter of its own, of rank 16, 32 or 64, on the upper blocks of one backbone.
docs/examples/router.md explains the output.
"""

import argparse
import json
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from common.headings import print_heading
from common.local_server import local_server
from common.rows import DATA, Row, read_rows, shuffled, write_rows
from common.trained_adapter import train_adapter
from peltier_client import Client, PeltierError, Predictions

# The adapters change only the last two of minilm's six blocks; the first four are computed once for all of a text.
SHARED_BLOCKS = 4

# The column of a set that holds its texts; for router.domain its name is the label.
TEXTS = {"banking77": "text", "clinc150": "text", "e2e": "human_reference"}

# The classifiers with two labels say yes to the texts whose intent matches.
YES = {
    "router.incident": (
        "compromised_card|lost_or_stolen_.*|.*_not_recognised|report_fraud|report_lost_card|freeze_account"
    ),
    "router.money": ".*transfer.*|top_up_.*|.*_top_up|topping_up_.*|pay_bill|request_refund|receiving_money",
    "router.identity": (
        ".*verify_.*identity|verify_source_of_funds|edit_personal_details"
        "|passcode_forgotten|pin_blocked|change_pin|pin_change"
    ),
    "router.smalltalk": (
        "are_you_a_bot|what_is_your_name|who_.*|how_old_are_you|where_are_you_from|do_you_have_pets"
        "|what_are_your_hobbies|meaning_of_life|tell_joke|fun_fact|greeting|goodbye|thank_you"
        "|what_can_i_ask_you|change_ai_name"
    ),
}
# What the router does: the first classifier in this order that says yes decides, else the domain.
POLICY = {
    "router.incident": "the fraud team, at once",
    "router.smalltalk": "a script",
    "router.identity": "the bank's assistant, after a proof of identity",
    "router.money": "the bank's assistant, which confirms before money moves",
}
DOMAINS = {
    "banking77": "the bank's assistant",
    "clinc150": "the personal assistant",
    "e2e": "the guide to restaurants",
}

# Sentences that tell personal data, and what fills their places. No set of real ones is free to copy.
TELLING = {
    "I am {name}.", "My name is {name}, my phone is {phone}.", "You can reach me at {phone} or {email}.",
    "The card is {card}.", "Write to {email} please.", "This is {name}, card number {card}.",
}  # fmt: skip
FIRST = ("Ada", "Grace", "Alan", "Emmy", "Karen", "Ravi", "Chen", "Amina")
LAST = ("Lovelace", "Hopper", "Moss", "Patel", "Wei", "Okafor", "Stone")


@dataclass(frozen=True)
class Classifier:
    """What an adapter is trained on: `rows` gives all rows of a part; `options` are further ones of `peltier train`."""

    rank: int
    labels: Sequence[str]
    rows: Callable[[str], Iterable[Row]]
    options: Sequence[str] = ()

    @property
    def num_rows(self) -> int:
        """Rows to train on; a tagger learns from few words of each."""
        return 1200 if self.options else max(300, 10 * len(self.labels))


def main() -> None:
    """The parts of the output, in their order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="train three classifiers on few rows")
    short = parser.parse_args().short
    classifiers = dict(islice(all_classifiers().items(), 3 if short else None))
    with tempfile.TemporaryDirectory(prefix="peltier-") as path:
        folder = Path(path)
        with local_server(folder, "minilm") as url, Client(url) as client:
            print_heading("Train: a LoRA adapter for each question")
            for name, classifier in classifiers.items():
                num_rows = 64 if short else classifier.num_rows
                client.upload(train_classifier(folder, name, classifier, num_rows))
            ask_and_route(client, num_texts=6 if short else 12)
            compare_costs(client, list(classifiers), num_texts=10 if short else 100)
            change_the_group(client, list(classifiers))


def all_classifiers() -> dict[str, Classifier]:
    """By the name of the task. `router.*` names all of them."""
    found = {"router.domain": Classifier(16, list(TEXTS), read_all)}
    tags = ("--task-type", "token-classification", "--label-column", "entities")
    found["router.personal-data"] = Classifier(32, ("name", "phone", "email", "card"), tell_personal_data, tags)
    for name, pattern in YES.items():
        found[name] = Classifier(16, ("no", "yes"), lambda part, pattern=pattern: balanced(pattern, part))
    for name, data in (("router.bank-intent", "banking77"), ("router.intent", "clinc150")):
        labels = json.loads((DATA / data / "labels.json").read_text())
        found[name] = Classifier(64, labels, lambda part, data=data: read_set(data, part))
    return found


def train_classifier(folder: Path, name: str, classifier: Classifier, num_rows: int) -> Path:
    """The artifact of a classifier, measured on as many rows as it was trained on at most."""
    train, validation = (
        write_rows(folder / f"{part}.jsonl", islice(classifier.rows(part), num_rows))
        for part in ("train", "validation")
    )
    (folder / "labels.json").write_text(json.dumps(classifier.labels))
    adapter = train_adapter(
        folder / f"{name}.safetensors",
        *("--task", name, "--preset", "lora", "--set", f"rank={classifier.rank}"),
        *("--set", "targets=all-linear", "--set", f"first_block={SHARED_BLOCKS}"),
        *("--train", train, "--validation", validation, "--labels", folder / "labels.json"),
        *("--epochs", 3, "--max-length", 64, *classifier.options),
    )
    metric = "f1" if classifier.options else "accuracy"
    print(f"  {name}: {adapter.num_parameters:,} parameters, {metric} {adapter.metrics[metric]:.3f}\n", flush=True)
    return adapter.file


def read_set(data: str, part: str) -> list[Row]:
    """The rows of a set, in a random order."""
    return shuffled(read_rows(DATA / data / f"{part}.jsonl.gz"))


def read_all(part: str) -> list[Row]:
    """As many rows of each set as the smallest has; the label is the set."""
    sets = {data: read_set(data, part) for data in TEXTS}
    least = min(map(len, sets.values()))
    return shuffled(
        {"text": row[TEXTS[data]], "label": label, "label_text": row.get("label_text", "")}
        for label, (data, rows) in enumerate(sets.items())
        for row in rows[:least]
    )


def balanced(pattern: str, part: str) -> list[Row]:
    """As many rows with the label 1 (yes) as with 0 (no)."""
    rows = [*read_set("banking77", part), *read_set("clinc150", part)]
    sides = [
        [row for row in rows if bool(re.fullmatch(pattern, row["label_text"])) is wanted] for wanted in (False, True)
    ]
    least = min(map(len, sides))
    return shuffled({"text": row["text"], "label": label} for label, side in enumerate(sides) for row in side[:least])


def tell_personal_data(part: str) -> Iterator[Row]:
    """Real requests, two of three with a sentence that tells personal data before or behind; each has its spans."""
    draw = random.Random(part)
    for row in read_all(part):
        text, entities = row["text"], []
        if draw.random() < 2 / 3:
            telling, own = fill(draw.choice(sorted(TELLING)), draw)
            before = draw.random() < 0.5
            start = 0 if before else len(text) + 1
            text = f"{telling} {text}" if before else f"{text} {telling}"
            entities = [{**one, "start": one["start"] + start, "end": one["end"] + start} for one in own]
        yield {"text": text, "entities": entities}


def fill(telling: str, draw: random.Random) -> tuple[str, list[Row]]:
    """The sentence with random data in its places, and where they are."""
    first, last = draw.choice(FIRST), draw.choice(LAST)
    values = {
        "name": f"{first} {last}",
        "phone": f"+{draw.randint(1, 99)} {draw.randint(100, 999)} {draw.randint(1000, 9999)}",
        "email": f"{first}.{last}{draw.randint(1, 99)}@example.org".lower(),
        "card": " ".join(str(draw.randint(1000, 9999)) for _ in range(4)),
    }
    text, entities = "", []
    for before, place in re.findall(r"([^{]*)(?:\{(\w+)\})?", telling):
        text += before
        if place:
            entities.append({"start": len(text), "end": len(text) + len(values[place]), "label": place})
            text += values[place]
    return text, entities


def ask_and_route(client: Client, num_texts: int) -> None:
    """Asks all classifiers about texts on which none was trained, and applies the policy."""
    print_heading("Ask: one request for each text, `router.*` names all classifiers")
    for row in islice(tell_personal_data("validation"), num_texts):
        answers = checked(client.predict_tasks("router.*", row["text"]))
        said = [f"{name.removeprefix('router.')} {describe(answer)}" for name, answer in answers.items()]
        print(f"  {' '.join(row['text'].split())}\n    {', '.join(filter(None, said))}\n    -> {route(answers)}")


def checked(answers: Mapping[str, Predictions | PeltierError]) -> dict[str, Predictions]:
    """The answers. Raises the error of a classifier that failed: it has not said no."""
    found = {}
    for name, answer in answers.items():
        if isinstance(answer, PeltierError):
            raise answer
        found[name] = answer
    return found


def describe(answer: Predictions) -> str:
    """The label with its score, or the personal data."""
    if answer.task == "router.personal-data":
        return ", ".join(f"{one.label}: {one.text}" for one in answer[0].entities) or "none"
    return f"{answer[0].label} {answer[0].score:.2f}"


def route(answers: Mapping[str, Predictions]) -> str:
    """Who answers the text."""
    for name, decision in POLICY.items():
        if name in answers and answers[name][0].label == "yes":
            return decision
    return DOMAINS[answers["router.domain"][0].label]


def compare_costs(client: Client, names: Sequence[str], num_texts: int) -> None:
    """The time of one request with all classifiers, of as many single requests, and of one classifier alone."""
    print_heading(f"Cost: the median of {num_texts} texts, over HTTP on this machine")
    texts = [row["text"] for row in read_all("validation")[:num_texts]]
    ways: Mapping[str, Callable[[str], object]] = {
        "one classifier": lambda text: client.predict(names[0], text),
        f"{len(names)}, one request": lambda text: client.predict_tasks("router.*", text),
        f"{len(names)}, one after another": lambda text: [client.predict(name, text) for name in names],
    }
    for way, ask in ways.items():
        seconds = []
        for text in texts:
            start = time.perf_counter()
            ask(text)
            seconds.append(time.perf_counter() - start)
        print(f"  {way + ':':24} {1000 * statistics.median(seconds):6.1f} ms")


def change_the_group(client: Client, names: Sequence[str]) -> None:
    """The caller asks `router.*`, so it needs no change when a classifier comes or goes."""
    print_heading("Change: take one classifier away; the caller stays as it is")
    text = "how do i reset the pin of my card?"
    print(f"  {len(client.predict_tasks('router.*', text))} classifiers answer; {names[-1]} is deleted")
    client.delete(names[-1])
    left = client.predict_tasks("router.*", text)
    print(f"  {len(left)} classifiers answer: {', '.join(left)}")


if __name__ == "__main__":
    main()
