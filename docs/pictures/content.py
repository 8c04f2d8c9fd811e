"""A server with adapters, tenants and traffic, the same each time but for its times."""

import gzip
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2
from safetensors.numpy import load, save

from benchmarks.common.serving import serving

ROOT = Path(__file__).parents[2]
EXAMPLES, DATA = ROOT / "examples" / "adapters", ROOT / "examples" / "data"
_NAMES = ("banking77", "clinc150", *(f"{task}-{team}" for team in "abcde" for task in ("banking77", "clinc150")))
# The adapter with a guarded rollout.
WITH_ROLLOUT = "banking77-a"
KEY = "plt_of_the_operator_of_this_server"


@dataclass(frozen=True)
class Site:
    """The address of the server, a client with the operator's key, an adapter that was trained with its report, and the
    id of a training that the server has run."""

    url: str
    client: httpx2.Client
    trained: Path
    training: str = ""

    def ask(self, inputs: Sequence[str]) -> None:
        """Sends each text to three tasks."""
        for text, task in itertools.product(inputs, ("banking77", "clinc150", "intents")):
            self.client.post(f"/v1/tasks/{task}/predict", json={"inputs": text}).raise_for_status()


@contextmanager
def site(scratch: Path) -> Iterator[Site]:
    """A ready server while the block runs."""
    trained = _train(scratch)
    environment = {"PELTIER_ADMIN_KEY": KEY}
    with (
        serving("--worker", store=scratch / "store", environment=environment) as server,
        httpx2.Client(timeout=60) as client,
    ):
        client.base_url, client.headers["authorization"] = httpx2.URL(server.url), f"Bearer {KEY}"
        opened = Site(server.url, client, trained)
        _publish(opened)
        _ask(opened)
        _begin_rollout(client)
        yield replace(opened, training=_train_on_server(client))


def texts(data: str, count: int) -> list[str]:
    """The first texts of a validation file."""
    return [row["text"] for row in _rows(data, count)]


def labelled(data: str, count: int) -> str:
    """Rows of a validation file from everywhere in it, as a table with a header."""
    rows = _rows(data, 3000)
    return "text\tlabel\n" + "\n".join(f"{row['text']}\t{row['label_text']}" for row in rows[:: 3000 // count])


def broken(artifact: Path) -> bytes:
    """The artifact without one of its tensors, and with another one too short."""
    data = artifact.read_bytes()
    length = int.from_bytes(data[:8], "little")
    tensors = load(data)
    first, second, *_ = sorted(tensors)
    tensors[second] = tensors[second].reshape(-1)[:-1].copy()
    del tensors[first]
    return save(tensors, json.loads(data[8 : 8 + length])["__metadata__"])


def _rows(data: str, count: int) -> list[dict[str, str]]:
    with gzip.open(DATA / data / "validation.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in itertools.islice(lines, count)]


def _train(folder: Path) -> Path:
    """An adapter with gates, of a tenth of the rows of clinc150, with its report."""
    rows, output = folder / "rows.jsonl", folder / "intents.safetensors"
    with gzip.open(DATA / "clinc150" / "train.jsonl.gz", "rt") as lines:
        rows.write_text("".join(itertools.islice(lines, 0, None, 10)))
    files = [f"--train={rows}", f"--validation={DATA / 'clinc150' / 'validation.jsonl.gz'}", f"--output={output}"]
    command = [sys.executable, "-m", "peltier_client", "train", "--task=intents", "--preset=unipelt-apl"]
    command += ["--backbone=minilm", f"--labels={DATA / 'clinc150' / 'labels.json'}", *files]
    subprocess.run([*command, "--epochs=2", "--learning-rate=5e-3", "--eval-rows=300"], check=True)  # noqa: S603
    return output


def _publish(opened: Site) -> None:
    """A dozen tasks; banking77 has two versions, and traffic is split between them."""
    client = opened.client
    for tenant in ("search", "support"):
        client.post("/v1/tenants", json={"name": tenant, "quotas": {"requests_per_second": 50}}).raise_for_status()
        for scopes in (["predict"], ["predict", "publish"]):
            key = {"tenant": tenant, "scopes": scopes, "note": f"the {tenant} team"}
            client.post("/v1/keys", json=key).raise_for_status()
    for name in _NAMES:
        example = "clinc150" if name.startswith("clinc150") else "banking77"
        _upload(client, EXAMPLES / f"{example}.safetensors", name)
    _upload(client, EXAMPLES / "banking77-adamix.safetensors", "banking77")
    _upload(client, opened.trained, "intents")
    split = {"versions": {"1": 0.8, "2": 0.2}}
    client.put("/v1/adapters/banking77/aliases/production", json={"version": 1}).raise_for_status()
    client.put("/v1/adapters/banking77/aliases/production", json=split).raise_for_status()


def _upload(client: httpx2.Client, file: Path, name: str) -> None:
    client.post("/v1/adapters", files={"file": file.read_bytes()}, data={"name": name}).raise_for_status()


def _ask(opened: Site) -> None:
    """Some traffic, of which a part fails."""
    opened.ask(texts("banking77", 100))
    for task in ("banking78", "clinc"):
        opened.client.post(f"/v1/tasks/{task}/predict", json={"inputs": "where is my card"})


def _begin_rollout(client: httpx2.Client) -> None:
    """A candidate in the shadow of a version, and the right labels of some requests."""
    alias = f"/v1/adapters/{WITH_ROLLOUT}/aliases/production"
    _upload(client, EXAMPLES / "banking77-adamix.safetensors", WITH_ROLLOUT)
    client.put(alias, json={"version": 1}).raise_for_status()
    client.put(alias, json={"candidate": 2, "guard": {"shadow": True}}).raise_for_status()
    for row in _rows("banking77", 3000)[::25]:
        answer = client.post(f"/v1/tasks/{WITH_ROLLOUT}/predict", json={"inputs": row["text"]}).raise_for_status()
        feedback = {"request_id": answer.headers["x-request-id"], "row": 0, "label": row["label_text"]}
        client.post("/v1/feedback", json=feedback).raise_for_status()


def _train_on_server(client: httpx2.Client) -> str:
    """Trains an adapter on rows of a few intents, after another training that is paused."""
    rows = [{"text": row["text"], "label": row["label_text"]} for row in _rows("banking77", 400)]
    asked = {"task": "card-questions", "preset": "compacter", "seed": 1, "examples": rows, "budget": {"steps": 240}}
    waiting = client.post("/v1/trainings", json={**asked, "task": "transfers", "preset": "lora"}).raise_for_status()
    client.post(f"/v1/trainings/{waiting.json()['id']}/pause").raise_for_status()
    training: str = client.post("/v1/trainings", json=asked).raise_for_status().json()["id"]
    while (found := client.get(f"/v1/trainings/{training}").raise_for_status().json())["finished_at"] is None:
        time.sleep(1)
    assert found["status"] == "succeeded", found
    return training
