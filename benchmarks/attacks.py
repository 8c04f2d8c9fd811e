"""The attacks that one tenant runs against a server in benchmarks/neighbours.py, each in its own process.

    python benchmarks/attacks.py NAME --url URL --key KEY [--once]

It prints a line when it begins, runs until SIGTERM, and prints how many answers of each status it read. After an answer
a caller sends its next request at once, and ignores `Retry-After`. With `--once` each caller sends one request, and the
program ends with the last answer.
"""

import asyncio
import itertools
import json
import os
import random
import resource
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from common.callers import connections, request_bytes, run, status_of
from common.harness import create_parser

Sender = Callable[["Attacker"], Awaitable[None]]
NUM_COSTLY, NUM_HOGS, NUM_LISTED = 32, 64, 100
_SENTENCE = (
    "what begins as a modest story about two brothers and their farm grows, almost without one false note, into one "
    "of the warmest and funniest films of the year"
)
_SIXTY_WORDS = " ".join((_SENTENCE.split() * 3)[:60])
# As much as a body may have.
_LONG_TEXT = (" ".join([_SENTENCE] * 20_000))[:1_900_000]
_HANG_UP_SECONDS = 0.05
_SLOW_PIECE_SECONDS = 0.5


def predict(task: str, inputs: object, **parameters: object) -> Callable[[str], bytes]:
    """One request for one task; it becomes bytes when the caller's key is known, like all requests here."""
    body = {"inputs": inputs, "parameters": parameters}
    return lambda key: request_bytes(f"/v1/tasks/{task}/predict", body, key)


def mixed(tasks: Iterable[str], text: str) -> Callable[[str], bytes]:
    """One text for each task, in one request."""
    body = {"requests": [{"task": task, "input": text} for task in tasks]}
    return lambda key: request_bytes("/v1/predict", body, key)


def fetch(path: str) -> Callable[[str], bytes]:
    """A GET."""
    return lambda key: f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n".encode()


def outputs(task: str, count: int) -> Callable[[str], bytes]:
    """A request of the Open Inference Protocol that names one output so many times."""
    inputs = [{"name": "text", "shape": [1000], "datatype": "BYTES", "data": ["a"] * 1000}]
    body = {"inputs": inputs, "outputs": [{"name": "label"}] * count}
    return lambda key: request_bytes(f"/v2/models/{task}/infer", body, key)


def zeros(task: str, num_bytes: int) -> Callable[[str], bytes]:
    """A tensor of zeros, four of which are an empty text."""
    size = {"binary_data_size": num_bytes}
    text = json.dumps(
        {"inputs": [{"name": "text", "shape": [num_bytes // 4], "datatype": "BYTES", "parameters": size}]}
    )
    head = (
        f"POST /v2/models/{task}/infer HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(text) + num_bytes}\r\n"
        f"inference-header-content-length: {len(text)}\r\nauthorization: Bearer "
    )
    return lambda key: f"{head}{key}\r\n\r\n{text}".encode() + bytes(num_bytes)


def send_file(data: bytes) -> Callable[[str], bytes]:
    """A file for a batch."""
    parts = (
        b'--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\n'
        b'content-disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n' + data + b"\r\n--x--\r\n"
    )
    head = (
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-type: multipart/form-data; boundary=x\r\n"
        f"content-length: {len(parts)}\r\nauthorization: Bearer "
    )
    return lambda key: f"{head}{key}\r\n\r\n".encode() + parts


def random_lengths(task: str, count: int) -> list[Callable[[str], bytes]]:
    """Requests of different numbers of tokens, so that few batches have the same number."""
    draw, words = random.Random(0), _SENTENCE.split()
    return [
        predict(task, [" ".join(draw.choices(words, k=draw.randint(1, 90))) for _ in range(draw.randint(1, 32))])
        for _ in range(count)
    ]


@dataclass(frozen=True)
class Attacker:
    """A caller: its address, its requests, which never end or are one, and the statuses it has read. A connection that
    breaks before an answer is `broken`; one that the attacker closes first is `left`."""

    url: str
    requests: Iterator[bytes]
    statuses: Counter[str]

    async def attack(self, send: Sender) -> None:
        """Sends all requests. After a broken connection it goes on with the next request over a new one."""
        while True:
            try:
                return await send(self)
            except OSError:
                self.statuses["broken"] += 1


async def ask(attacker: Attacker) -> None:
    """Sends the next request as soon as the last one is answered."""
    async with connections(attacker.url, 1) as (connection,):
        for request in attacker.requests:
            attacker.statuses[await _status(connection.ask(request))] += 1


async def hang_up(attacker: Attacker) -> None:
    """Sends a whole request, and closes the connection before it can be answered."""
    for request in attacker.requests:
        async with connections(attacker.url, 1) as (connection,):
            try:
                async with asyncio.timeout(_HANG_UP_SECONDS):
                    status = await _status(connection.ask(request))
            except TimeoutError:
                status = "left"
            attacker.statuses[status] += 1


async def read_slowly(attacker: Attacker) -> None:
    """Reads an answer in small pieces, and disconnects in the middle of it."""
    for request in attacker.requests:
        reader, writer = await _open(attacker.url)
        writer.write(request)
        for _ in range(4):
            await reader.read(1024)
            await asyncio.sleep(_SLOW_PIECE_SECONDS)
        writer.transport.abort()
        attacker.statuses["left"] += 1


async def send_slowly(attacker: Attacker) -> None:
    """Sends a body byte by byte until the server closes the connection."""
    for request in attacker.requests:
        _, writer = await _open(attacker.url)
        for byte in request:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(_SLOW_PIECE_SECONDS / 10)
        writer.close()
        attacker.statuses["left"] += 1


async def say_nothing(attacker: Attacker) -> None:
    """Holds a connection until the server closes it."""
    for _ in attacker.requests:
        reader, writer = await _open(attacker.url)
        await reader.read()
        writer.close()
        attacker.statuses["closed"] += 1


async def _open(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = urlsplit(url).netloc.partition(":")
    return await asyncio.open_connection(host, int(port), limit=4096)


async def _status(answer: Awaitable[bytes]) -> str:
    try:
        await answer
    except RuntimeError as error:
        return status_of(error)
    return "200"


@dataclass(frozen=True)
class Attack:
    """A number of callers who all send the same requests; `adapters` are the kinds that the tenant must publish."""

    callers: int
    requests: tuple[Callable[[str], bytes], ...]
    adapters: tuple[str, ...] = ("plain",)
    send: Sender = ask


_COSTLY = [f"costly-{number}" for number in range(NUM_COSTLY)]
_HOGS = [f"hog-{number}" for number in range(NUM_HOGS)]
_UNKNOWN = [f"nobody-{number}" for number in range(1024)]
_PAGES = (fetch("/v1/adapters?limit=100"), fetch("/v1/adapters/labels"), fetch("/v1/adapters/labels/versions"))

ATTACKS = {
    # No attack: shows whether the victim's figures repeat.
    "nobody": Attack(0, ()),
    # 32 long sentences in each request.
    "flood": Attack(16, (predict("plain", [_SENTENCE] * 32),)),
    # One short text for each of 32 adapters of the highest cost that the server accepts; then long ones for one.
    "costly": Attack(4, (mixed(_COSTLY, "a b"),), ("costly",)),
    "costly rows": Attack(16, (predict(_COSTLY[0], [_SENTENCE] * 32),), ("costly",)),
    # A prefix of 512.
    "prefix": Attack(16, (predict("prefix", [_SENTENCE] * 32),), ("prefix",)),
    # Another number of tokens in each request.
    "shapes": Attack(1, tuple(random_lengths("plain", 2000))),
    # As many inputs for a task of 4,096 long labels as an answer has room for: with the best labels, and with all.
    "labels": Attack(4, (predict("labels", ["a b"] * 200),), ("labels",)),
    "all labels": Attack(4, (predict("labels", ["a b"] * 12, top_k=4096),), ("labels",)),
    # Pages of adapters with many long labels.
    "lists": Attack(8, _PAGES, ("labels",)),
    # Texts of 1.9 MB; as many bytes in 1,024 texts.
    "texts": Attack(32, (predict("plain", _LONG_TEXT),)),
    "many texts": Attack(32, (predict("plain", [_LONG_TEXT[:1800]] * 1024),)),
    # 380 texts of 60 words in one request.
    "one request": Attack(1, (predict("plain", [_SIXTY_WORDS] * 380),)),
    # One output 8,000 times; a tensor of half a million empty texts; a thousand mistakes in a small body.
    "outputs": Attack(2, (outputs("plain", 8000),)),
    "zeros": Attack(2, (zeros("plain", 2_000_000),)),
    "mistakes": Attack(2, (predict("plain", [1] * 1000),)),
    # Mixed requests of 1,024 items; of 1,024 names that do not exist.
    "mixed": Attack(16, (mixed(["plain"] * 1024, "a b"),)),
    "unknown names": Attack(16, (mixed(_UNKNOWN, "a b"),)),
    # Large requests of callers who do not wait for the answer.
    "hang-up": Attack(48, (predict("plain", _LONG_TEXT),), send=hang_up),
    "mixed hang-up": Attack(48, (mixed(["plain"] * 1024, _SENTENCE),), send=hang_up),
    # 32 long sentences for each of 64 adapters, which fill the device three times.
    "leases": Attack(NUM_HOGS, tuple(predict(name, [_SENTENCE] * 32) for name in _HOGS), ("hogs",)),
    # Downloads that break off, and bodies that arrive byte by byte.
    "downloads": Attack(32, (fetch("/v1/adapters/hog-0/versions/1/artifact"),), ("hogs",), read_slowly),
    # The check reads the lines of files by turns, whatever they hold.
    "blank lines": Attack(2, (send_file(b"\n" * 900_000),)),
    "bodies": Attack(256, (predict("plain", _SENTENCE),), send=send_slowly),
    # More connections than the server accepts, without a request.
    "silent": Attack(2500, (fetch("/health"),), send=say_nothing),
}


async def run_attack(attack: Attack, url: str, key: str, *, once: bool) -> Counter[str]:
    """Runs until SIGTERM, or until each caller has sent one request; returns the statuses that all have read."""
    statuses: Counter[str] = Counter()
    requests = [make(key) for make in attack.requests]
    # Every caller begins at a request of its own.
    turns = (
        itertools.islice(itertools.cycle(requests), number % len(requests), None) for number in range(attack.callers)
    )
    attackers = [Attacker(url, itertools.islice(turn, 1) if once else turn, statuses) for turn in turns]
    callers = [asyncio.ensure_future(one.attack(attack.send)) for one in attackers]
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: [one.cancel() for one in callers])
    print("begun", flush=True)
    ends = await asyncio.gather(*callers, return_exceptions=True)
    if failed := [one for one in ends if isinstance(one, Exception)]:
        raise failed[0]
    return statuses


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("name", choices=list(ATTACKS))
    parser.add_argument("--url", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--once", action="store_true", help="each caller sends one request and stops")
    given = parser.parse_args()
    os.nice(10)  # in production the attacker has a machine of its own
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(json.dumps(run(run_attack(ATTACKS[given.name], given.url, given.key, once=given.once))), flush=True)


if __name__ == "__main__":
    main()
