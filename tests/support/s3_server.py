"""Real S3 servers on a free loopback port, each in its own process."""

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BUCKET = "peltier-tests"
_ENDPOINT = re.compile(r"http://127\.0\.0\.1:[0-9]+")
_START_SECONDS = 60


@dataclass(frozen=True)
class S3Server:
    """One that runs, and has an empty bucket."""

    endpoint: str
    process: subprocess.Popen[bytes]

    def url(self, prefix: str, **options: object) -> str:
        """The blob store below a prefix of its bucket."""
        return with_options(f"s3://{BUCKET}/{prefix}", endpoint=self.endpoint, allow_http="true", **options)


def with_options(url: str, **options: object) -> str:
    """The URL with these query options."""
    return f"{url}?{'&'.join(f'{key}={value}' for key, value in options.items())}"


def moto(directory: Path) -> Sequence[str]:
    """The command of moto's server, which keeps everything in its memory; the directory is not used."""
    return sys.executable, str(Path(__file__).with_name("moto_s3.py"))


def rclone(directory: Path) -> Sequence[str]:
    """The command of rclone's server over a directory, which ignores create-only silently."""
    return str(Path(sys.executable).with_name("rclone")), "serve", "s3", "--addr", "127.0.0.1:0", str(directory)


@contextmanager
def start(command: Sequence[str], log: Path) -> Iterator[S3Server]:
    """Runs the server until the block ends. What it writes to its terminal goes to `log`, its address too."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            endpoint = _wait_for_address(process, log)
            # Neither server asks who makes a bucket.
            request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")  # noqa: S310 - our own address
            urllib.request.urlopen(request, timeout=_START_SECONDS).close()  # noqa: S310
            yield S3Server(endpoint, process)
        finally:
            process.kill()


def _wait_for_address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if (found := _ENDPOINT.search(log.read_text())) is not None:
            return found[0]
        time.sleep(0.02)
    raise AssertionError(f"{process.args!r} does not start: {log.read_text()}")
