"""Which files of Peltier's own code run for one prediction, one batch and one decoding step.

    .venv/bin/python benchmarks/chains.py

It records every call of a Python function in all threads. The work runs once before, so calls that only a first request
makes do not count, and then several times, so the server's own polls do not count. A prediction goes through the socket
of a server in this process.
"""

import http.client
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from common.adapters import make_artifact, make_bytes
from common.options import create_parser
from peltier_adapters.batch.choice import choose_runner
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.generation import Decoding, Generator, create_draft
from peltier_adapters.residency.bank import Banks
from peltier_backbone.load import load_backbone
from peltier_backbone.text.packing import Encoded
from peltier_server.app import create_app
from peltier_server.http.process import run
from peltier_server.settings import load_settings

T5 = str(Path(__file__).parents[1] / "examples/backbones/t5-mini")
_NUM_RUNS = 5
TOKENS = Encoded((5, 8, 13, 21, 34), (0,) * 5)


class Chain:
    """The files that run while `recording`, in the order in which they are entered."""

    def __init__(self) -> None:
        self.recording = False
        self.files: dict[str, None] = {}

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Takes one event of the interpreter."""
        if self.recording and event == "call":
            _, found, path = frame.f_code.co_filename.rpartition("/peltier_")
            if found:
                self.files[f"peltier_{path}"] = None

    def of(self, work: Callable[[], object]) -> list[str]:
        """The files that `work` enters each time but the first."""
        work()
        runs = [self._record(work) for _ in range(_NUM_RUNS)]
        return [file for file in runs[0] if all(file in run for run in runs)]

    def _record(self, work: Callable[[], object]) -> dict[str, None]:
        self.files = {}
        self.recording = True
        work()
        self.recording = False
        return self.files


def main() -> None:
    """Prints the chains, a file a line."""
    create_parser(__doc__).parse_args()
    chain = Chain()
    sys.setprofile(chain.profile)
    threading.setprofile(chain.profile)
    show("a Compacter's row on the CPU", chain.of(compacter_batch()))
    show("a step of a T5 with a Compacter", chain.of(t5_step()))
    show("a prediction over HTTP", prediction(chain))


def show(name: str, files: list[str]) -> None:
    """One chain."""
    print(f"{name}: {len(files)} files")
    print("".join(f"  {file}\n" for file in files))


def compacter_batch() -> Callable[[], object]:
    """A batch of one row on MiniLM, with the runner that a server chooses once."""
    backbone = load_backbone("minilm")
    resident, runner = Banks(backbone).add(make_artifact(backbone, "compacter", 0)), choose_runner(backbone)
    return lambda: forward(backbone, [Row(TOKENS, resident)], runner=runner)


def t5_step() -> Callable[[], object]:
    """One token of a text that has begun."""
    backbone = load_backbone(T5)
    generator = Generator(backbone)
    resident = Banks(backbone).add(make_artifact(backbone, "compacter", 0))
    generator.join([create_draft(backbone, Row(TOKENS, resident), Decoding(max_new_tokens=32))])
    return generator.step


def prediction(chain: Chain) -> list[str]:
    """A server in this thread, asked by another one."""
    with tempfile.TemporaryDirectory() as folder:
        artifacts = Path(folder) / "artifacts"
        artifacts.mkdir()
        data = make_bytes(load_backbone("minilm"), "compacter", 0)
        (artifacts / "sst2.safetensors").write_bytes(data)
        settings = load_settings({"port": 0, "store": Path(folder) / "store", "publish": artifacts})
        app = create_app(settings)
        found: list[str] = []
        asking = threading.Thread(target=lambda: found.extend(_ask(chain, app)), daemon=True)
        asking.start()
        run(app, settings)
        asking.join()
    return found


def _ask(chain: Chain, app: Any) -> list[str]:
    sys.setprofile(None)
    while not app.state.lifecycle.ready:
        time.sleep(0.1)
    port = _listening_port()
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask() -> None:
        body = json.dumps({"inputs": "a good film"})
        connection.request("POST", "/v1/tasks/compacter-0/predict", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text

    for _ in range(20):
        ask()
    found = chain.of(ask)
    os.kill(os.getpid(), signal.SIGINT)
    return found


def _listening_port() -> int:
    listening = [one for one in psutil.Process().net_connections("tcp4") if one.status == psutil.CONN_LISTEN]
    return int(listening[0].laddr.port)


if __name__ == "__main__":
    main()
