"""Can a tagger take its labels from the request? A head on frozen MiniLM that reads the names of labels.

    .venv/bin/python benchmarks/label_names.py --data DIR [--steps 1500] [--seeds 3]

As in GLiNER (Zaratiana et al. 2024), words and the names of labels are embedded, and the product of both says whether
the word is of that label. Here the encoder is frozen, and the two maps behind it are all that is trained. To such a
head a label that training has not seen is one more name. Each type of WNUT-17 in turn is left out of training and then
asked for in the test rows. All other types are trained, and so are the slots of E2E whose values are in the text.
Beside it is the same head trained with the type. F1 in percent is of maximal runs of words, the mean over seeds.

Small: --steps 5 --seeds 1 --rows 20
"""

import gzip
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean

import torch
from common.harness import Table, create_parser
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_backbone.text.packing import Encoded
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

TYPES = ("corporation", "creative-work", "group", "location", "person", "product")
SIZE, BATCH, RATE, MAX_WORDS = 256, 32, 2e-3, 60
# A text's words, each with its type or "".
Tagged = list[tuple[str, str]]


@dataclass(frozen=True)
class Sentence:
    """The frozen states [words, hidden], the type of each word or "", and the types that its set has."""

    states: Tensor
    types: tuple[str, ...]
    known: frozenset[str]


class NameHead(nn.Module):
    """Logits [words, labels] for the states of words and of the names of labels, [any, hidden]."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.word, self.name, self.bias = nn.Linear(hidden, SIZE), nn.Linear(hidden, SIZE), nn.Parameter(torch.zeros(1))

    def forward(self, words: Tensor, names: Tensor) -> Tensor:
        scores: Tensor = self.word(words) @ self.name(names).T / SIZE**0.5 + self.bias
        return scores


def read_rows(file: Path, count: int) -> list[dict[str, object]]:
    with gzip.open(file, "rt") as lines:
        return [json.loads(line) for line, _ in zip(lines, range(count), strict=False)]


def wnut(row: dict[str, object]) -> Tagged:
    tokens, tags = row["tokens"], row["tags"]
    assert isinstance(tokens, list)
    assert isinstance(tags, list)
    return [(word, tag.partition("-")[2]) for word, tag in zip(tokens, tags, strict=True)]


def e2e(row: dict[str, object]) -> Tagged:
    """The words whose run is the value of a slot have its name, in words: `priceRange` is "price range"."""
    words = str(row["human_reference"]).split()
    plain, types = [word.strip(".,;").lower() for word in words], [""] * len(words)
    for slot, value in re.findall(r"([\w ]+)\[(.*?)\]", str(row["meaning_representation"])):
        wanted, name = value.lower().split(), re.sub(r"(?<=[a-z])(?=[A-Z])", " ", slot.strip()).lower()
        for start in range(len(words) - len(wanted) + 1):
            if plain[start : start + len(wanted)] == wanted:
                types[start : start + len(wanted)] = [name] * len(wanted)
    return list(zip(words, types, strict=True))


def encode(backbone: Backbone, rows: Sequence[Tagged], known: Collection[str]) -> Iterator[Sentence]:
    """The state of a word is that of its first token."""
    for row in rows:
        ids, starts = [], []
        first, last = backbone.tokenizer.encode("", max_tokens=2).ids
        for word, _ in row[:MAX_WORDS]:
            starts.append(1 + len(ids))
            ids += backbone.tokenizer.encode(word, max_tokens=6).ids[1:-1] or (first,)
        states = _states(backbone, (first, *ids, last))
        yield Sentence(states[starts], tuple(kind for _, kind in row[:MAX_WORDS]), frozenset(known))


def embed_names(backbone: Backbone, names: Sequence[str]) -> Tensor:
    """The mean of a name's tokens, [names, hidden]."""
    encoded = [backbone.tokenizer.encode(name.replace("-", " "), max_tokens=16).ids for name in names]
    return torch.stack([_states(backbone, ids).mean(0) for ids in encoded])


def _states(backbone: Backbone, ids: Sequence[int]) -> Tensor:
    with torch.inference_mode():
        states = backbone.encode(backbone.pack([Encoded(tuple(ids), (0,) * len(ids))]))
    return states.clone()


def train(sentences: Sequence[Sentence], names: dict[str, Tensor], steps: int, seed: int) -> NameHead:
    """Every sentence asks for all types of its set that have a name here."""
    torch.manual_seed(seed)
    head = NameHead(next(iter(names.values())).shape[-1])
    optimizer = torch.optim.AdamW(head.parameters(), lr=RATE)
    for _ in range(steps):
        loss = torch.zeros(())
        for place in torch.randint(len(sentences), (BATCH,)).tolist():
            one = sentences[place]
            asked = sorted(one.known & names.keys())
            wanted = torch.tensor([[float(kind == name) for name in asked] for kind in one.types])
            found = head(one.states, torch.stack([names[name] for name in asked]))
            loss = loss + binary_cross_entropy_with_logits(found, wanted, reduction="sum") / BATCH
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return head


def f1(head: NameHead, sentences: Sequence[Sentence], kind: str, name: Tensor) -> float:
    """Of maximal runs of words of `kind`."""
    right = found_all = wanted_all = 0
    with torch.inference_mode():
        for one in sentences:
            found = _runs((head(one.states, name[None])[:, 0] > 0).tolist())
            wanted = _runs([own == kind for own in one.types])
            right, found_all, wanted_all = right + len(found & wanted), found_all + len(found), wanted_all + len(wanted)
    return 2 * right / max(1, found_all + wanted_all)


def _runs(marked: Sequence[bool]) -> set[tuple[int, int]]:
    places = [list(own) for is_marked, own in groupby(range(len(marked)), lambda at: marked[at]) if is_marked]
    return {(own[0], own[-1]) for own in places}


def main() -> None:
    parser = create_parser(__doc__, steps=1500, seeds=3, rows=100_000)
    parser.add_argument("--data", type=Path, required=True, help="the folder that has wnut17 and e2e_nlg")
    given = parser.parse_args()
    torch.set_num_threads(1)
    backbone = load_backbone("minilm")
    slots = [e2e(row) for row in read_rows(given.data / "e2e_nlg/train.jsonl.gz", min(given.rows, 2000))]
    kinds = sorted({kind for row in slots for _, kind in row} - {""})
    parts = {
        part: map(wnut, read_rows(given.data / f"wnut17/{part}.jsonl.gz", given.rows)) for part in ("train", "test")
    }
    training = [*encode(backbone, list(parts["train"]), TYPES), *encode(backbone, slots, kinds)]
    test = list(encode(backbone, list(parts["test"]), TYPES))
    names = dict(zip((*TYPES, *kinds), embed_names(backbone, (*TYPES, *kinds)), strict=True))
    table, everything = Table("left out", "F1 unseen", "F1 seen"), []
    heads = [train(training, names, given.steps, seed) for seed in range(given.seeds)]
    for kind in TYPES:
        others = {name: state for name, state in names.items() if name != kind}
        unseen = [train(training, others, given.steps, seed) for seed in range(given.seeds)]
        scores = [100 * fmean(f1(head, test, kind, names[kind]) for head in own) for own in (unseen, heads)]
        everything.append(scores)
        table.row(kind, *(f"{score:.1f}" for score in scores))
    table.row("mean", *(f"{fmean(column):.1f}" for column in zip(*everything, strict=True)))


if __name__ == "__main__":
    main()
