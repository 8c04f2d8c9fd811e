"""Two replicas behind HAProxy, restarted one after the other under load: how many requests fail.

    .venv/bin/python -m tests.support.rolling_restart [--rounds 3] [--callers 16] [--kill] [--backbone minilm]

It needs `haproxy` (Debian: apt-get install haproxy) and uses deploy/haproxy.cfg unchanged. The replicas share one store
with the example adapters. Callers send single texts, 32 texts at a time, and now and then 500 long texts, whose body is
too large for the balancer to repeat. They make no pause and never repeat a request. A request fails if its answer does
not have status 200. Each round stops each replica by SIGTERM, waits until it has ended, starts it again and waits until
the balancer sends it requests. With --kill the replicas are killed; then some requests fail, because only those that
may be repeated survive.
"""

import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from benchmarks.common.harness import create_parser, percentile
from benchmarks.common.ports import ReservedPort
from benchmarks.common.serving import PELTIER, Server
from tests.support.balancer import Balancer, balanced

ROOT = Path(__file__).parents[2]
TEXT = "my card was stolen and somebody is paying with it"
LONG = " ".join([TEXT] * 6)
SIZES = random.Random(0).choices([1, 32, 500], weights=[900, 95, 5], k=1000)
START_SECONDS = 120


class Replica:
    """One server process at a fixed port, which may end and begin again."""

    def __init__(self, flags: Sequence[str]) -> None:
        self._processes = ExitStack()
        port = self._processes.enter_context(ReservedPort()).number
        self.address = f"127.0.0.1:{port}"
        self._command = [*PELTIER, "serve", "--port", str(port), "--threads", "1", *flags]

    def start(self) -> None:
        """Starts the process; returns when it is ready."""
        self._process = self._processes.enter_context(running(self._command, self.address, {"OMP_NUM_THREADS": "1"}))

    def stop(self, sign: signal.Signals) -> int:
        """Stops the process; returns its exit status."""
        self._process.send_signal(sign)
        return self._process.wait(START_SECONDS)

    def end(self) -> None:
        """Kills every process of the replica."""
        self._processes.close()


@dataclass(frozen=True)
class Load:
    """A number of callers, who request any of `tasks` and pause after each answer."""

    tasks: Sequence[str]
    num_callers: int
    pause_seconds: float = 0.0


@dataclass
class CallerAnswers:
    """The seconds of each answer that a caller got, and its failed requests."""

    seconds: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)


def ask_until(end: threading.Event, url: str, load: Load, seed: int) -> CallerAnswers:
    """Sends requests one after another, over a connection that stays open as long as the balancer keeps it."""
    draw, found = random.Random(seed), CallerAnswers()
    with httpx2.Client(timeout=120) as client:
        while not end.is_set():
            task, size = draw.choice(load.tasks), draw.choice(SIZES)
            body = {"inputs": [LONG if size == max(SIZES) else TEXT] * size}
            started = time.monotonic()
            try:
                answer = client.post(f"{url}/v1/tasks/{task}/predict", json=body)
                failure = "" if answer.status_code == 200 else f"{answer.status_code} {answer.text[:200]}"
            except httpx2.HTTPError as error:
                failure = repr(error)
            found.seconds.append(time.monotonic() - started)
            if failure:
                found.failures[failure] += 1
            time.sleep(load.pause_seconds)
    return found


@contextmanager
def running(
    command: Sequence[str], address: str, environment: Mapping[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:  # fmt: skip
    """A process that answers at `address`, from the moment in which it is ready; it is killed at the end."""
    process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    try:
        Server(f"http://{address}", process).wait_until_ready()
        yield process
    finally:
        process.kill()
        process.wait()


def roll(
    replicas: Sequence[Replica], balancer: Balancer, rounds: int, sign: signal.Signals, *, trusting: bool = False
) -> None:
    """Restarts every replica `rounds` times, one after the other. With `trusting` the balancer takes the other one to
    be well meanwhile, however busy the machine is."""
    for _ in range(rounds):
        for number, replica in enumerate(replicas):
            with balancer.trusting(1 - number) if trusting else nullcontext():
                status = replica.stop(sign)
                assert status == (0 if sign is signal.SIGTERM else -sign), f"a replica ended with status {status}"
                replica.start()
                balancer.wait_until_up(number)


def measure(
    flags: Sequence[str], load: Load, rounds: int, sign: signal.Signals, *, trusting: bool = False
) -> list[CallerAnswers]:
    """The answers that callers got while replicas with `flags` were restarted; `trusting` is that of `roll`."""
    replicas, end = [Replica(flags) for _ in range(2)], threading.Event()
    with ExitStack() as started:
        for replica in replicas:
            started.callback(replica.end)
            replica.start()
        balancer = started.enter_context(balanced([replica.address for replica in replicas]))
        callers = started.enter_context(ThreadPoolExecutor(load.num_callers))
        started.callback(end.set)
        answers = [callers.submit(ask_until, end, balancer.url, load, seed) for seed in range(load.num_callers)]
        for number in range(len(replicas)):
            balancer.wait_until_up(number)
        roll(replicas, balancer, rounds, sign, trusting=trusting)
        end.set()
        return [one.result() for one in answers]


def report(callers: Sequence[CallerAnswers]) -> None:
    seconds = [one for caller in callers for one in caller.seconds]
    failures = sum((caller.failures for caller in callers), Counter())
    print(f"{len(seconds)} requests, {failures.total()} failed")
    print(", ".join(f"p{percent} {1000 * percentile(seconds, percent):.0f} ms" for percent in (50, 90, 99, 99.9)))
    print(f"longest {1000 * max(seconds):.0f} ms")
    for failure, times in failures.most_common(10):
        print(f"{times} x {failure}")


def main() -> None:
    parser = create_parser(__doc__, rounds=3, callers=16, backbone="minilm")
    parser.add_argument("--kill", action="store_true")
    asked = parser.parse_args()
    assert shutil.which("haproxy"), "haproxy is not installed"
    examples = ROOT / "examples" / "adapters"
    with tempfile.TemporaryDirectory() as directory:
        flags = ["--backbone", asked.backbone, "--store", f"{directory}/store", "--publish", str(examples)]
        sign = signal.SIGKILL if asked.kill else signal.SIGTERM
        report(measure(flags, Load(["banking77", "clinc150"], asked.callers), asked.rounds, sign))


if __name__ == "__main__":
    main()
