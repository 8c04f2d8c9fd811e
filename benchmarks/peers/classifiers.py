"""A router's eight classifiers on one mmBERT: one request to Peltier against eight merged models.

    .venv/bin/python benchmarks/peers/classifiers.py [--width 768] [--rates 2 6.25] [--seconds 30] [--threads 2]
        [--dtype int8] [--long-tokens 32768]

Semantic routers ask six to eight classifiers about each prompt, fine-tuned with LoRA from one ModernBERT: the domain,
jailbreaks, personal data and so on. Here the backbone has the shape of mmBERT-small or mmBERT-base and random weights,
and the adapters have ranks 16, 32 and 64 on all linear maps of the blocks from K on.

The first table has the milliseconds of one text by the clock, all by turns: all tasks as one batch, for K = 0 and for
three quarters of the blocks; one task; and transformers with as many merged models, and with one, which answers one
task. The second has the latencies of texts that arrive at each of `--rates` a second, independent of earlier answers:
Peltier over HTTP with all tasks in a request, and the models, eight or one, in a loop without HTTP, which is the best
server of its kind. Then the memory of each process. With `--long-tokens` a text of that length is sent to the server
as a whole and in windows of 512 tokens.

Small: --layers 2 --width 192 --vocabulary 200 --rounds 1 --seconds 1 --rates 2 --threads 1 --long-tokens 600
"""

import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx2
import torch
from contender import Contender
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import DTYPES, load_backbone
from peltier_client import Client
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import ModernBertConfig, ModernBertModel

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.adapters import TAGS, make_bytes, make_task
from common.callers import ask_at, poisson, request_bytes, run
from common.harness import Table, by_turns, create_parser, median, median_ratio, percentile, seconds_of
from common.memory import ProcessMemory
from common.serving import Server, serving

# The rank of each task's adapter.
RANKS = {
    "domain": 32, "intent": 64, "jailbreak": 32, "personal-data": 64, "fact-check": 16, "feedback": 16, "modality": 16,
    "language": 16,
}  # fmt: skip
ROUTER = "router."
ONE_TASK = "Peltier, one task"
MAX_TOKENS = 32_768
WINDOW = 512
# Of a word that the vocabulary does not have; a short one, because a server bounds the characters of a text.
UNKNOWN, WORD = 1, "a "
PERCENTS, CONNECTIONS = (50, 90, 99), 32


def words(tokens: int) -> str:
    """A text of that many tokens."""
    return (tokens * WORD).strip()


def save_checkpoint(directory: Path, layers: int, width: int, vocabulary: int) -> None:
    """A random mmBERT whose tokenizer makes one token of each word."""
    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=1152, num_hidden_layers=layers,
        num_attention_heads=width // 64, max_position_embeddings=MAX_TOKENS, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, cls_token_id=1, sep_token_id=2,
    )  # fmt: skip
    ModernBertModel(config).eval().save_pretrained(directory)
    tokenizer = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(directory / "tokenizer.json"))


def make_adapters(backbone: Backbone, first_block: int) -> dict[str, bytes]:
    """The file of each task's adapter: personal data are tags of tokens, the others labels of a text."""
    tags = TaskSpec(type="token-classification", labels=TAGS, inputs="single", max_length=WINDOW, stride=WINDOW // 4)
    texts = make_task(backbone, max_length=WINDOW)
    files = {}
    for number, (name, rank) in enumerate(RANKS.items()):
        task, head = (tags, {"pooling": "tokens"}) if name == "personal-data" else (texts, {})
        files[name] = make_bytes(
            backbone, "lora", number, task=task, targets="all-linear", rank=rank, first_block=first_block, **head
        )
    return files


def measure_one_text(
    backbone: Backbone, shared: Mapping[int, Mapping[str, bytes]], rivals: Sequence[Contender], tokens: int, rounds: int
) -> None:
    """The first table."""
    text = backbone.tokenizer.encode(words(tokens), max_tokens=tokens)
    measures: dict[str, Callable[[], float]] = {}
    for first_block, files in shared.items():
        banks = Banks(backbone)
        rows = [Row(text, banks.add(read_artifact(data, backbone)), scope="tenant") for data in files.values()]
        every, one = partial(forward, backbone, rows), partial(forward, backbone, rows[:1])
        measures[f"Peltier, {len(rows)} tasks, K = {first_block}"] = partial(seconds_of, every)
        measures[ONE_TASK] = partial(seconds_of, one)
    measures |= {rival.name: partial(rival.seconds, "text") for rival in rivals}
    found = by_turns(measures, rounds)
    table = Table("one text", "ms", "x one task", first=36)
    for name, seconds in found.items():
        table.row(
            name,
            median([1e3 * one for one in seconds], ".1f"),
            f"{median_ratio(seconds, found['Peltier, one task']):.2f}",
        )


def measure_arrivals(
    server: Server, rivals: Sequence[Contender], folder: Path, rates: Sequence[float], seconds: float
) -> None:
    """The second table: at each rate the same moments for all."""
    draw, table = (
        random.Random(0),
        Table("texts that arrive", *(f"p{percent} ms" for percent in PERCENTS), "n", first=36),
    )
    lengths = itertools.cycle(map(len, json.loads((folder / "texts.json").read_text())))
    for rate in rates:
        moments = list(poisson(rate, seconds, draw.expovariate))
        bodies = ({"tasks": [f"{ROUTER}*"], "input": words(length)} for length in lengths)
        arrivals = [(moment, request_bytes("/v1/predict", body)) for moment, body in zip(moments, bodies, strict=False)]
        (folder / "moments.json").write_text(json.dumps(moments))
        found = {"Peltier": run(ask_at(server.url, arrivals, CONNECTIONS))}
        for rival in rivals:
            rival.seconds("moments")
            found[rival.name] = json.loads((folder / "seconds.json").read_text())
        for name, latencies in found.items():
            cells = (f"{1e3 * percentile(latencies, percent):.0f}" for percent in PERCENTS)
            table.row(f"{rate:g} a second, {name}", *cells, len(latencies))


def measure_long(server: Server, tokens: int) -> None:
    """A long text as one row and in windows, and what the server has needed at most."""
    memory = ProcessMemory(server.process.pid)
    for name in ("long.domain", f"{ROUTER}personal-data"):
        memory.forget()
        start = time.monotonic()
        path = f"{server.url}/v1/tasks/{name}/predict"
        answered = httpx2.post(path, json={"inputs": words(tokens)}, timeout=3600).raise_for_status()
        seconds = time.monotonic() - start
        print(f"{name}, {tokens:,} tokens: {seconds:.1f} s, peak {memory.peak_mib:.0f} MiB, {answered.json()['usage']}")


def main() -> None:
    parser = create_parser(
        __doc__, layers=22, width=384, vocabulary=256_000, tokens=30, rounds=7, rates=(2.0, 6.25), seconds=30.0,
        threads=2, long_tokens=0,
    )  # fmt: skip
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as directory, ExitStack() as running:
        folder, checkpoint = Path(directory), Path(directory) / "checkpoint"
        save_checkpoint(checkpoint, given.layers, given.width, given.vocabulary)
        draw = random.Random(0)
        lengths = [draw.randint(given.tokens // 2, 3 * given.tokens // 2) for _ in range(64)]
        (folder / "texts.json").write_text(json.dumps([[UNKNOWN] * length for length in lengths]))
        backbone, exact = load_backbone(str(checkpoint), dtype=given.dtype), load_backbone(str(checkpoint))
        shared = {first_block: make_adapters(exact, first_block) for first_block in (0, 3 * given.layers // 4)}
        rivals = []
        for count in (1, len(RANKS)):
            arguments = str(checkpoint), directory, str(count), str(given.threads)
            name = f"transformers, {count} merged"
            rival = Contender(name, "classifiers_transformers.py", None, *arguments, num_threads=given.threads)
            rivals.append(running.enter_context(rival))
        measure_one_text(backbone, shared, rivals, given.tokens, given.rounds)
        whole = make_bytes(
            exact, "lora", 0, task=make_task(exact, max_length=MAX_TOKENS), targets="all-linear", rank=32
        )
        del backbone, exact
        flags = ["--backbone", str(checkpoint), "--dtype", given.dtype, "--threads", str(given.threads)]
        server = running.enter_context(serving(*flags, environment={"OMP_NUM_THREADS": str(given.threads)}))
        with Client(server.url) as client:
            for name, data in shared[3 * given.layers // 4].items():
                client.upload(data, name=f"{ROUTER}{name}")
            client.upload(whole, name="long.domain")
        measure_arrivals(server, rivals, folder, given.rates, given.seconds)
        for name, pid in {
            "Peltier's server": server.process.pid,
            **{rival.name: rival.pid for rival in rivals},
        }.items():
            print(f"{name}: {ProcessMemory(pid).now_mib:.0f} MiB in memory")
        if given.long_tokens:
            measure_long(server, given.long_tokens)


if __name__ == "__main__":
    main()
