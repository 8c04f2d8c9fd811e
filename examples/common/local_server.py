"""A server on this machine for the time of an example."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def local_server(folder: Path, backbone: str, admin_key: str = "", *options: str) -> Iterator[str]:
    """The address of a ready `peltier serve` on a free port of loopback, which ends with the block.

    Its store and its log are in `folder`. Without an admin key the server is open, to this machine alone.
    `options` are more words of its command.
    """
    log = folder / "server.log"
    words = ["serve", "--backbone", backbone, "--store", str(folder / "store"), "--port", "0", *options]
    # The settings of the caller's own server have no part in an example.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PELTIER_")}
    if admin_key:
        environment["PELTIER_ADMIN_KEY"] = admin_key
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "peltier_client", *words], stdout=output, stderr=output, env=environment
        )
    try:
        yield _wait_until_ready(process, log)
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """The address that the log names; if the server ends first, the example ends with the log."""
    while not (ready := re.search(r"ready on (http://\S+)", log.read_text())):
        if process.poll() is not None:
            sys.exit(log.read_text())
        time.sleep(0.1)
    return ready[1]
