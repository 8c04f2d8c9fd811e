"""How much a shadowing candidate delays answers: the same requests with and without a guarded rollout under shadow.

    .venv/bin/python benchmarks/shadows_beside.py [--rate 10] [--seconds 4] [--rounds 30] [--data validation.jsonl.gz]

The server has one thread and MiniLM, and a task with two Compacters, the second of which is the candidate. Sentences
arrive at `--rate` a second, independent of earlier answers. In each round they are asked for `--seconds` without a
rollout, then for as long under shadow. The ratios are those of a round's two parts, and their median is printed last,
with the number of shadows that were computed and dropped.
"""

import random
from collections import Counter

import httpx2
from common.adapters import make_bytes
from common.callers import ask_at, poisson, predict_bytes, run
from common.harness import Table, add_data, create_parser, median_ratio, percentile
from common.sentences import load_sentences
from common.serving import serving
from peltier_backbone.load import load_backbone
from peltier_client import Client

# The server closes connections that are idle for longer.
_MAX_SECONDS = 4.0
_PERCENTS = (50, 90, 99)
# Nothing is decided while it is measured.
_GUARD = {"alpha": 1e-12}


def ask(url: str, draw: random.Random, sentences: list[str], rate: float, seconds: float) -> list[float]:
    """Percentiles of the latency in milliseconds."""
    moments = list(poisson(rate, min(seconds, _MAX_SECONDS), draw.expovariate))
    requests = [predict_bytes("demo", draw.choice(sentences)) for _ in moments]
    found = run(ask_at(url, list(zip(moments, requests, strict=True)), 64))
    return [1e3 * percentile(found, percent) for percent in _PERCENTS]


def count_shadows(url: str) -> Counter[str]:
    """Requests for shadowing candidates by what became of them, from the server's metrics."""
    counts = Counter[str]()
    for line in httpx2.get(f"{url}/metrics").text.splitlines():
        if line.startswith("peltier_shadows_total{"):
            counts[line.partition('result="')[2].partition('"')[0]] += round(float(line.split()[-1]))
    return counts


def main() -> None:
    parser = create_parser(__doc__, rate=10.0, seconds=4.0, rounds=30)
    add_data(parser)
    given = parser.parse_args()
    sentences, draw = load_sentences(given.data, 800), random.Random(0)
    backbone = load_backbone("minilm")
    found: dict[str, list[list[float]]] = {"alone": [], "shadowed": []}
    table = Table("the incumbent is", *(f"p{percent} ms" for percent in _PERCENTS))
    with serving() as server, Client(server.url) as client:
        for seed in range(2):
            client.upload(make_bytes(backbone, "compacter", seed), name="demo")
        client.set_alias("demo", "production", 1)
        for _ in range(given.rounds):
            found["alone"].append(ask(server.url, draw, sentences, given.rate, given.seconds))
            client.start_rollout("demo", "production", 2, shadow=True, **_GUARD)
            found["shadowed"].append(ask(server.url, draw, sentences, given.rate, given.seconds))
            client.stop_rollout("demo", "production")
            for state, measured in found.items():
                table.row(state, *(f"{value:.1f}" for value in measured[-1]))
        shadows = count_shadows(server.url)
    for place, percent in enumerate(_PERCENTS):
        alone, shadowed = ([round_[place] for round_ in found[state]] for state in found)
        print(f"p{percent} under shadow, x alone: {median_ratio(shadowed, alone):.2f}")
    print(", ".join(f"{count} {result}" for result, count in sorted(shadows.items())))


if __name__ == "__main__":
    main()
