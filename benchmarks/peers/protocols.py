"""The Open Inference Protocol beside MLServer: the same requests by Triton's clients to both, and their CPU time.

    .venv/bin/python benchmarks/peers/protocols.py --mlserver VENV/bin/mlserver [--requests 300]

MLServer is installed in an environment of its own (`pip install mlserver`), because it needs protobuf below 7. Both
servers answer without a model: Peltier by `benchmarks/instant.py`, which still tokenises, queues and checks, and
MLServer by `mlserver_labels.py`. The first lines say where the answers or the calls differ. CPU time is that of the
whole process of a server.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from peltier_backbone.load import load_backbone

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.adapters import make_bytes
from common.harness import Table, by_turns, create_parser, median
from common.ports import ReservedPort
from common.serving import Server, serving_stock

INSTANT = (sys.executable, str(Path(__file__).parents[1] / "instant.py"))
MODEL = "task-00000"
TEXTS = np.array(["a gem of a film", "a dull film"], dtype=object)
NAMES = ("label", "score", "scores")
_START_SECONDS = 60


def main() -> None:
    parser = create_parser(__doc__, requests=300, rounds=3)
    parser.add_argument("--mlserver", required=True, help="the command of an environment with MLServer")
    given = parser.parse_args()
    originals = {"compacter": make_bytes(load_backbone("minilm"), "compacter", 0)}
    with (
        ReservedPort() as port,
        serving_stock(originals, 1, "--grpc-port", str(port.number), command=INSTANT) as (peltier, _),
        serving_mlserver(given.mlserver) as (mlserver, other_port),
    ):
        calls = {
            (name, form): (server, call)
            for name, server, grpc_port in (("peltier", peltier, port.number), ("mlserver", mlserver, other_port))
            for form, call in calls_of(server, grpc_port).items()
        }
        compare({key: call for key, (_, call) in calls.items()})
        report({key: cost(server, call, given.requests) for key, (server, call) in calls.items()}, given.rounds)


@contextmanager
def serving_mlserver(command: str) -> Iterator[tuple[Server, int]]:
    """MLServer while the block runs, and its port for gRPC."""
    with (
        tempfile.TemporaryDirectory() as directory,
        ReservedPort() as http,
        ReservedPort() as grpc,
        ReservedPort() as own,
    ):
        folder = Path(directory)
        settings = {"http_port": http.number, "grpc_port": grpc.number, "metrics_port": own.number}
        (folder / "settings.json").write_text(json.dumps({"host": "127.0.0.1", "parallel_workers": 0, **settings}))
        (folder / "mlserver_labels.py").write_text(Path(__file__).with_name("mlserver_labels.py").read_text())
        model = {"name": MODEL, "implementation": "mlserver_labels.Labels", "parameters": {"version": "1"}}
        (folder / "model-settings.json").write_text(json.dumps(model))
        log = (folder / "log").open("w")
        process = subprocess.Popen([command, "start", directory], cwd=directory, stdout=log, stderr=log)
        server = Server(f"http://127.0.0.1:{http.number}", process)
        try:
            wait_for(server)
            yield server, grpc.number
        finally:
            process.terminate()
            process.wait()


def wait_for(server: Server) -> None:
    """Returns once the server is ready by the protocol. Raises RuntimeError if that takes too long."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            if httpx2.get(f"{server.url}/v2/health/ready", timeout=2).status_code == httpx2.codes.OK:
                return
        except httpx2.HTTPError:
            time.sleep(0.2)
    raise RuntimeError("MLServer has not become ready")


def calls_of(server: Server, port: int) -> dict[str, Callable[[], object]]:
    """One inference in each form of the protocol."""
    http = http_client.InferenceServerClient(server.url.removeprefix("http://"))
    grpc = grpc_client.InferenceServerClient(f"127.0.0.1:{port}")
    outputs = [http_client.InferRequestedOutput(name, binary_data=False) for name in NAMES]
    return {
        "HTTP, JSON": lambda: http.infer(MODEL, [tensor(http_client, binary_data=False)], outputs=outputs),
        "HTTP, bytes": lambda: http.infer(MODEL, [tensor(http_client)]),
        "gRPC": lambda: grpc.infer(MODEL, [tensor(grpc_client)]),
    }


def tensor(module: object, **options: bool) -> object:
    found = module.InferInput("text", [len(TEXTS)], "BYTES")  # type: ignore[attr-defined]
    found.set_data_from_numpy(TEXTS, **options)
    return found


def compare(calls: dict[tuple[str, str], Callable[[], object]]) -> None:
    """Prints the shapes of each answer, or the error."""
    for (name, form), call in calls.items():
        try:
            answer = call()
            shown = ", ".join(f"{one} {answer.as_numpy(one).shape}" for one in NAMES)  # type: ignore[attr-defined]
        except Exception as error:
            shown = f"fails: {str(error)[:60]}"
        print(f"{name:10} {form:12} {shown}", flush=True)


def cost(server: Server, call: Callable[[], object], count: int) -> Callable[[], float]:
    """A measure of the server's CPU milliseconds for each of `count` calls; NaN if they fail."""

    def measure() -> float:
        begun = server.cpu_seconds
        try:
            for _ in range(count):
                call()
        except Exception:
            return float("nan")
        return 1e3 * (server.cpu_seconds - begun) / count

    return measure


def report(measures: dict[tuple[str, str], Callable[[], float]], rounds: int) -> None:
    table = Table("CPU ms of a call", "peltier", "mlserver")
    found = by_turns(measures, rounds)
    for form in dict.fromkeys(form for _, form in found):
        table.row(form, *(median(found[name, form]) for name in ("peltier", "mlserver")))


if __name__ == "__main__":
    main()
