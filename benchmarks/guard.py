"""Has one of ten figures become worse? Compares ratios of this run with the committed ones of this kind of processor.

    .venv/bin/python benchmarks/guard.py [--rounds 7] [--level avx2] [--record]

Every figure is a ratio to plain transformers, safetensors or FastAPI, which take turns with Peltier in the same run, so
that the speed of the machine and other programs cancel out. Higher is better. A figure is the median of its rounds, in
CPU time of the process on one thread. One that has lost more than 10 % is measured again, with three times as many
rounds; if it is still lower, the run fails. `guard.json` has the committed figures by processor and instruction level.
`--level` holds Peltier and torch to a lower level than the machine's own. Without committed figures the run prints its
own and succeeds; `--record` writes them there.
"""

import asyncio
import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from common.adapters import INPUTS, create_trained, make_bytes
from common.callers import ask_all, predict_bytes, run
from common.committed import Figures, Ratios, losses, processor, read_figures, record_figures
from common.forced import add_level, hold_process, own_level
from common.harness import cpu_seconds, create_parser
from common.padding import pad
from common.passes import FOUR, Adapters, bare_pass, batches_of, mixed_pass, transformers_pass
from common.sentences import load_sentences
from common.serving import Server, serving, serving_stock, started, variant
from common.shelf import Shelf
from common.texts import ours, theirs
from overhead import BARE, INSTANT
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.load import load_backbone
from peltier_backbone.machine.heap import keep_freed_memory
from peltier_backbone.text.packing import Encoded
from peltier_client import Client
from peltier_server.context import AdapterKey
from peltier_server.residency.loader import StoreLoader
from peltier_store.blobs.blobs import Blobs
from peltier_training.models.model import HeadedAdapter
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import BertModel, T5ForConditionalGeneration
from transformers.utils.logging import disable_progress_bar

COMMITTED = Path(__file__).with_name("guard.json")
T5 = Path(__file__).parents[1] / "examples/backbones/t5-mini"
_RETRIES = 3  # times as many rounds more for a figure that has lost
_REQUESTS, _REQUESTS_IN_TURN, _CALLERS, _TASKS = 1200, 100, 16, 8
_UPLOADS, _UPLOADS_IN_TURN, _LOADS = 16, 4, 25
_TEXT_TOKENS, _TEXT_ROWS = 24, 16

# Measures one ratio of each of its figures.
Round = Callable[[], dict[str, float]]


def total_ratio(pairs: Iterable[tuple[float, ...]]) -> float:
    """The sum of the reference's seconds divided by the sum of ours, which take turns."""
    base, own = map(sum, zip(*pairs, strict=True))
    return base / own


class Models:
    """What several figures need: MiniLM in each precision, and in transformers; sentences of SST-2's lengths."""

    def __init__(self) -> None:
        self.exact = load_backbone("minilm")
        self.plain = BertModel.from_pretrained(find_checkpoint("minilm")).eval()
        sentences = [self.exact.tokenizer.encode(text, max_tokens=128) for text in load_sentences(None, 64)]
        self.batches = batches_of(sentences)
        self.originals = {preset: make_bytes(self.exact, preset, 0) for preset in FOUR}


@contextmanager
def forward_passes(models: Models) -> Iterator[Round]:
    """Batches of 32 sentences, without adapters in each precision, and with 32 adapters of four presets."""
    plain = partial(transformers_pass, models.plain, models.batches)
    backbones = {dtype: load_backbone("minilm", dtype=dtype) for dtype in ("float32", "bfloat16", "int8")}
    mixed = partial(mixed_pass, models.exact, Adapters(models.exact, models.exact).mix(models.batches, FOUR))

    def measure() -> dict[str, float]:
        base = cpu_seconds(plain)
        seconds = {dtype: cpu_seconds(partial(bare_pass, one, models.batches)) for dtype, one in backbones.items()}
        found = {f"{dtype} forward / transformers": base / own for dtype, own in seconds.items()}
        return {**found, "mixed / bare, float32": seconds["float32"] / cpu_seconds(mixed)}

    yield measure


@contextmanager
def single_rows(models: Models) -> Iterator[Round]:
    """One sentence alone, with an adapter; the contenders take turns after each sentence."""
    rows = models.batches[0]
    (adapted,) = Adapters(models.exact, models.exact).mix([rows], FOUR)

    def measure() -> dict[str, float]:
        calls = (
            (partial(transformers_pass, models.plain, [[row]]), partial(mixed_pass, models.exact, [[with_adapter]]))
            for row, with_adapter in zip(rows, adapted, strict=True)
        )
        return {"single row / transformers": total_ratio(tuple(map(cpu_seconds, pair)) for pair in calls)}

    yield measure


@contextmanager
def generated_texts(_: Models) -> Iterator[Round]:
    """Greedy texts of a small T5."""
    backbone = load_backbone(str(T5))
    model = T5ForConditionalGeneration.from_pretrained(T5, dtype=torch.float32).eval()
    rows = [backbone.tokenizer.encode(text, max_tokens=64) for text in load_sentences(None, 2 * _TEXT_ROWS)]

    def measure() -> dict[str, float]:
        base = cpu_seconds(lambda: theirs(model, rows, _TEXT_ROWS, _TEXT_TOKENS))
        own = cpu_seconds(lambda: ours(backbone, rows, [None], _TEXT_ROWS, _TEXT_TOKENS))
        return {"T5 texts / generate": base / own}

    yield measure


@contextmanager
def training_steps(models: Models) -> Iterator[Round]:
    """A step of a Compacter, against a plain model whose frozen weights pass gradients to its embeddings."""
    batch = models.batches[0]
    plain_loss = _plain_loss(models.plain, batch)
    loss = _adapter_loss(models.exact, batch)

    def measure() -> dict[str, float]:
        base = cpu_seconds(lambda: plain_loss().backward())
        return {"training step / transformers": base / cpu_seconds(lambda: loss().backward())}

    yield measure


def _plain_loss(plain: BertModel, batch: Sequence[Encoded]) -> Callable[[], torch.Tensor]:
    model = plain.requires_grad_(requires_grad=False)
    ids, mask = pad([row.ids for row in batch])
    embedded = model.get_input_embeddings()(ids).requires_grad_()
    return lambda: model(inputs_embeds=embedded, attention_mask=mask).last_hidden_state[:, 0].square().mean()


def _adapter_loss(backbone: Backbone, batch: Sequence[Encoded]) -> Callable[[], torch.Tensor]:
    model = create_trained(HeadedAdapter, backbone, "compacter")
    labels = torch.tensor([number % 2 for number in range(len(batch))])
    return lambda: F.cross_entropy(model(backbone.pack(batch)), labels)


@contextmanager
def loads(models: Models) -> Iterator[Round]:
    """From a file to the device, with a digest and every check, against safetensors, which only maps the file.

    The least steady figure: busy caches slow both sides, but not equally. Runs beside other programs differ by 8 %."""
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(4) as executor:
        loader = StoreLoader(models.exact, Blobs.open(directory), executor)
        shelf = Shelf.create(loader, Path(directory), models.originals)
        loop = asyncio.new_event_loop()

        def path_of(key: AdapterKey) -> Path:
            return Path(directory) / key.digest.replace(":", "/")

        async def load(key: AdapterKey) -> float:
            seconds = await shelf.load(key)
            shelf.slots.retire(key)
            return seconds.cpu

        def measure() -> dict[str, float]:
            keys = map(shelf.store, [*FOUR] * _LOADS)
            pairs = (
                (cpu_seconds(partial(load_file, path_of(one))), loop.run_until_complete(load(one))) for one in keys
            )
            return {"load / safetensors": total_ratio(pairs)}

        try:
            yield measure
        finally:
            loop.close()


@contextmanager
def requests(models: Models) -> Iterator[Round]:
    """CPU time of a request whose model answers at once, against FastAPI alone."""
    stored = serving_stock({"compacter": models.originals["compacter"]}, _TASKS, *_QUIET, command=INSTANT)
    with stored as (server, tasks), started(BARE) as bare:
        asked = [
            predict_bytes(tasks[number % _TASKS], text) for number, text in enumerate(load_sentences(None, _REQUESTS))
        ]

        def spent(one: Server, some: Sequence[bytes]) -> float:
            before = one.cpu_seconds
            run(ask_all(one.url, some, _CALLERS))
            return one.cpu_seconds - before

        def measure() -> dict[str, float]:
            parts = (asked[first : first + _REQUESTS_IN_TURN] for first in range(0, len(asked), _REQUESTS_IN_TURN))
            return {"request / FastAPI alone": total_ratio((spent(bare, some), spent(server, some)) for some in parts)}

        yield measure


@contextmanager
def uploads(models: Models) -> Iterator[Round]:
    """Server's CPU time of an upload, against transformers that only computes its golden examples, four in a batch."""
    golden = [models.exact.tokenizer.encode(text, max_tokens=128) for text in INPUTS]
    plain = partial(transformers_pass, models.plain, [golden] * _UPLOADS_IN_TURN)
    numbers = itertools.count(1)
    with (
        serving(*_QUIET) as server,
        Client(server.url, timeout=60) as client,
        ThreadPoolExecutor(4) as callers,
    ):

        def upload(number: int) -> None:
            client.upload(variant(models.originals["compacter"], number), name=f"guard-{number}")

        def measure() -> dict[str, float]:
            base = own = 0.0
            for _ in range(_UPLOADS // _UPLOADS_IN_TURN):
                before = server.cpu_seconds
                list(callers.map(upload, itertools.islice(numbers, _UPLOADS_IN_TURN)))
                own += server.cpu_seconds - before
                base += cpu_seconds(plain)
            return {"upload / golden examples in transformers": base / own}

        yield measure


_QUIET = ("--log-level", "warning")
SECTIONS = (forward_passes, single_rows, generated_texts, training_steps, loads, requests, uploads)


def measure(models: Models, num_rounds: int, committed: Figures) -> Ratios:
    """The ratios of every round, one section after the other; sections that have lost are measured longer."""
    found: Ratios = {}
    for section in SECTIONS:
        with section(models) as measure_round:
            measure_round()  # warms up
            own: Ratios = {}
            repeat(measure_round, num_rounds, own)
            if losses(own, committed):
                repeat(measure_round, _RETRIES * num_rounds, own)
        show(own, committed)
        found |= own
    return found


def repeat(measure_round: Round, num_rounds: int, found: Ratios) -> None:
    """Adds the ratios of `num_rounds` more rounds."""
    for _ in range(num_rounds):
        for name, ratio in measure_round().items():
            found.setdefault(name, []).append(ratio)


def show(found: Ratios, committed: Figures) -> None:
    """A line for each figure: median, the middle half of its rounds, and the committed figure."""
    for name, ratios in found.items():
        low, middle, high = statistics.quantiles(ratios, n=4)
        known = committed.get(name)
        verdict = "" if known is None else f"{known:10.3f}{100 * (middle / known - 1):+8.1f} %"
        print(f"{name:44}{middle:8.3f}   {low:.3f} to {high:.3f}{verdict}", flush=True)


def main() -> None:
    parser = create_parser(__doc__, rounds=7)
    parser.add_argument("--record", action="store_true", help="write the figures of this processor to guard.json")
    add_level(parser)
    given = parser.parse_args()
    hold_process(given.level)
    keep_freed_memory()
    torch.set_num_threads(1)
    disable_progress_bar()
    kind, name = processor()
    level = given.level or own_level()
    committed = {} if given.record else read_figures(COMMITTED, kind, level)
    print(f"{name} ({kind}), {level}; higher is better; median, middle half of {given.rounds} rounds, committed figure")
    found = measure(Models(), given.rounds, committed)
    if given.record:
        record_figures(COMMITTED, kind, name, level, found)
    elif not committed:
        print(f"{COMMITTED.name} has no figures of {kind} at {level}: run again with --record and commit the file")
    lost = losses(found, committed)
    if lost:
        sys.exit("lost more than 10 %: " + "; ".join(lost))


if __name__ == "__main__":
    main()
