"""How much a worker beside the server delays answers: `peltier serve --worker` with a training that runs and pauses.

    .venv/bin/python benchmarks/worker_beside.py [--rate 20] [--seconds 20] [--rounds 6] [--data validation.jsonl.gz]

The server has one thread and MiniLM, its worker the lowest priority. Sentences arrive at `--rate` a second, independent
of earlier answers. In each round a training of the default method is paused for `--seconds`, then it runs for as long.
The ratios are those of a round's two parts, and their median is printed last.
"""

import random
import time
from collections.abc import Callable

from common.adapters import make_bytes
from common.callers import ask_at, poisson, predict_bytes, run
from common.harness import Table, add_data, create_parser, median_ratio, percentile
from common.sentences import load_sentences
from common.serving import serving
from peltier_backbone.load import load_backbone
from peltier_client import Client
from peltier_client.protocol.trainings import Training

_PERCENTS = (50, 90, 99)
_EPOCHS = 10_000


class Beside:
    """A server, a training that does not end by itself, and the sentences that are asked."""

    def __init__(self, url: str, sentences: list[str]) -> None:
        self._url, self._client, self._sentences = url, Client(url), sentences
        self._draw = random.Random(0)
        rows = [{"text": text, "label": str(number % 2)} for number, text in enumerate(sentences[:200])]
        self._id = self._client.train("trained", rows, wait=False, settings={"epochs": _EPOCHS}).id

    def pause(self) -> None:
        """Returns once the worker has given the training back."""
        self._client.trainings.pause(self._id)
        self._until(lambda training: training.status == "paused")

    def resume(self) -> None:
        """Returns once the training takes steps."""
        step = self._step(self._client.trainings.get(self._id))
        self._client.trainings.resume(self._id)
        self.until_it_runs(step)

    def until_it_runs(self, step: int = 0) -> None:
        """Returns once the training is beyond `step`."""
        self._until(lambda training: training.status == "running" and self._step(training) > step)

    def ask(self, rate: float, seconds: float) -> list[float]:
        """Percentiles of the latency in milliseconds."""
        moments = list(poisson(rate, seconds, self._draw.expovariate))
        requests = [predict_bytes("demo", self._draw.choice(self._sentences)) for _ in moments]
        found = run(ask_at(self._url, list(zip(moments, requests, strict=True)), 64))
        return [1e3 * percentile(found, percent) for percent in _PERCENTS]

    def _until(self, condition: Callable[[Training], bool]) -> None:
        while not condition(training := self._client.trainings.get(self._id)):
            if training.has_ended:
                raise RuntimeError(f"the training has ended: {training.reason}")
            time.sleep(0.2)

    @staticmethod
    def _step(training: Training) -> int:
        return 0 if training.progress is None else training.progress.step or 0


def main() -> None:
    parser = create_parser(__doc__, rate=20.0, seconds=20.0, rounds=6)
    add_data(parser)
    given = parser.parse_args()
    sentences = load_sentences(given.data, 800)
    data = make_bytes(load_backbone("minilm"), "compacter", 0)
    found: dict[str, list[list[float]]] = {"paused": [], "running": []}
    table = Table("the training is", *(f"p{percent} ms" for percent in _PERCENTS))
    with serving("--worker") as server:
        with Client(server.url) as client:
            client.upload(data, name="demo")
        beside = Beside(server.url, sentences)
        beside.until_it_runs()
        for _ in range(given.rounds):
            beside.pause()
            found["paused"].append(beside.ask(given.rate, given.seconds))
            beside.resume()
            found["running"].append(beside.ask(given.rate, given.seconds))
            for state, measured in found.items():
                table.row(state, *(f"{value:.1f}" for value in measured[-1]))
    for place, percent in enumerate(_PERCENTS):
        alone, together = ([round_[place] for round_ in found[state]] for state in found)
        print(f"p{percent} beside a running training, x paused: {median_ratio(together, alone):.2f}")


if __name__ == "__main__":
    main()
