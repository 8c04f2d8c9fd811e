"""The shipped alerts and dashboards with a real Prometheus that scrapes two real servers under load."""

import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.residency.served import device_bytes as bytes_on_device
from peltier_backbone.backbone import Backbone

from tests.support.dashboards import NAMES, write_dashboards
from tests.support.prometheus_server import SHIPPED, WINDOW, Prometheus, wait_for
from tests.support.server_process import Server

ROOT = Path(__file__).parent.parent
ALERTS = {rule["alert"]: rule for group in yaml.safe_load((SHIPPED / "alerts.yml").read_text())["groups"]
          for rule in group["rules"]}  # fmt: skip
KEYS = {"PELTIER_ADMIN_KEY": "plt_admin-key-of-a-test", "PELTIER_METRICS_KEY": "plt_metrics-key-of-a-test"}
ADMIN = {"authorization": f"Bearer {KEYS['PELTIER_ADMIN_KEY']}"}
TEXT = "a good film , and the plot was very dull " * 6
# As many as a leak would leave open; connections leave descriptors to the rest.
MAX_FILES, HELD_FILES = 1000, 850

pytestmark = [
    pytest.mark.slow,  # test_deploy.py stays, which reads the same files
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed"),
]


def call(server: Server, path: str, key: str | None = None, **options: Any) -> httpx2.Response:
    """A POST with the operator's key, or with `key`."""
    headers = ADMIN if key is None else {"authorization": f"Bearer {key}"}
    return httpx2.post(f"{server.url}{path}", headers=headers, timeout=60, **options)


def predict(server: Server, task: str, inputs: object, key: str | None = None) -> int:
    """The status of a prediction."""
    return call(server, f"/v1/tasks/{task}/predict", key, json={"inputs": inputs}).status_code


def upload(server: Server, data: bytes, key: str | None = None) -> httpx2.Response:
    """`POST /v1/adapters`."""
    return call(server, "/v1/adapters", key, files={"file": data})


def publish(server: Server, data: bytes) -> None:
    """An upload that is repeated until it is accepted: on a busy machine a server with low bounds may refuse it."""
    wait_for(lambda: upload(server, data).is_success or None, lambda: server.log)


@contextmanager
def repeating(*acts: Callable[[], object]) -> Iterator[None]:
    """Each of `acts` again and again, in a thread of its own, during the block; fails with its first error.

    They pause, because quick requests would otherwise be more than 99 of 100 on a slow machine."""
    stop, errors = threading.Event(), list[BaseException]()

    def repeat(act: Callable[[], object]) -> None:
        while not stop.wait(0.25):
            try:
                act()
            except httpx2.TransportError:
                continue  # a test ends a server
            except BaseException as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=repeat, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []


class Stack:
    """Prometheus and its servers: a BERT whose bounds are low, and a T5 that writes texts."""

    def __init__(self, directory: Path, low: Server, texts: Server, prometheus: Prometheus) -> None:
        self.directory, self.low, self.texts, self.prometheus = directory, low, texts, prometheus
        self.dashboards = directory / "dashboards"
        write_dashboards(self.dashboards)


def start_low(directory: Path, bert_directory: Path, device_bytes: int) -> Server:
    """One adapter fits on the device and none in the host's memory; a batch has one row."""
    flags = ["--backbone", str(bert_directory), "--store", str(directory / "low")]
    flags += ["--device-bytes", str(device_bytes), "--host-bytes", "0", "--max-load-wait-seconds", "0.3"]
    flags += ["--max-batch-rows", "1", "--max-queue-tokens", "170000", "--max-inputs", "2000"]
    held = f"for _ in $(seq {HELD_FILES}); do exec {{held}}</dev/null; done"
    few_files = ("bash", "-c", f'ulimit -n {MAX_FILES}; {held}; exec "$@"', "bash")
    return Server(directory / "low.log", *flags, under=few_files, **KEYS)


def start_texts(directory: Path, t5_directory: Path) -> Server:
    """A batch has any number of rows, and counts as stuck soon."""
    flags = ["--backbone", str(t5_directory), "--store", str(directory / "texts"), "--max-batch-seconds", "0.2"]
    flags += ["--max-batch-tokens", "1000000", "--max-batch-rows", "1000000", "--max-queue-tokens", "1000000"]
    return Server(directory / "texts.log", *flags, "--max-runner-restarts", "1000", **KEYS)


def fill_low(stack: Stack, bert: Backbone, make_artifact: Callable[..., bytes]) -> list[str]:
    """Publishes adapters, of which one is damaged afterwards, and returns the keys of a tenant with few requests and of
    one without room."""
    for name in ("damaged", "a", "b"):
        data = make_artifact(bert, name=name, seed=ord(name[0]))
        publish(stack.low, data)
        if name == "damaged":
            (blob,) = (stack.directory / "low").rglob(sha256(data).hexdigest())
    wait_for(lambda: predict(stack.low, "a", TEXT) == 200 or None, lambda: stack.low.log)
    blob.chmod(0o600)
    blob.write_bytes(blob.read_bytes()[:-8] + b"\xff" * 8)
    return [
        add_tenant(stack.low, "few", {"requests_per_second": 1}),
        add_tenant(stack.low, "full", {"max_stored_bytes": 1}),
    ]


def add_tenant(server: Server, name: str, quotas: dict[str, int]) -> str:
    """A tenant's key."""
    assert call(server, "/v1/tenants", json={"name": name, "quotas": quotas}).status_code == 201
    key = call(server, "/v1/keys", json={"tenant": name, "scopes": ["predict", "publish"]}).json()["key"]
    return str(key)


@pytest.fixture(scope="module")
def stack(
    bert: Backbone, t5: Backbone, bert_directory: Path, t5_directory: Path, make_artifact: Callable[..., bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stack]:  # fmt: skip
    """The whole stack under load: predictions, texts, failures, refusals and uploads."""
    directory = tmp_path_factory.mktemp("monitoring")
    parts = read_artifact(make_artifact(bert, name="a", seed=ord("a")), bert).manifest.parts
    device_bytes = int(1.5 * bytes_on_device(parts, bert))
    with ExitStack() as started:
        prometheus = Prometheus(directory, KEYS["PELTIER_METRICS_KEY"])
        started.callback(prometheus.end)
        low = start_low(directory, bert_directory, device_bytes)
        started.callback(low.end)
        low.wait_until_ready()
        texts = start_texts(directory, t5_directory)
        started.callback(texts.end)
        texts.wait_until_ready()
        stack = Stack(directory, low, texts, prometheus)
        few, full = fill_low(stack, bert, make_artifact)
        for name, kind in (("classify", "classification"), ("heavy", "classification"), ("write", "text2text")):
            publish(texts, make_artifact(t5, name=name, task_type=kind))
        prometheus.watch([low.url, texts.url])
        prometheus.reload()
        small = make_artifact(bert, name="small")
        acts = (
            lambda: [predict(low, task, ["bad", TEXT * 4]) for task in ("a", "b", "damaged")],
            lambda: [predict(low, "a", "bad", few) for _ in range(3)],
            lambda: [upload(low, small, full), upload(low, b"nonsense")],
            lambda: [predict(texts, task, "bad") for task in ("classify", "write")],
        )
        with repeating(*acts):
            yield stack


def test_prometheus_accepts_the_configuration(stack: Stack) -> None:
    """It has loaded the shipped files, and its rules are the shipped ones and evaluate without error."""
    names = {rule["name"] for rule in stack.prometheus.rules()}
    assert names == set(ALERTS)
    wait_for(
        lambda: {rule["health"] for rule in stack.prometheus.rules()} == {"ok"} or None,
        lambda: str([rule for rule in stack.prometheus.rules() if rule["health"] != "ok"]),
    )


def test_alerts_about_adapters_and_changes_fire(stack: Stack) -> None:
    """A damaged version, evictions, quotas and refused uploads."""
    stack.prometheus.wait_for_alerts(
        {"PeltierErrors", "PeltierLoadFailures", "PeltierEvictionThrash"}
        | {"PeltierQuotaRefusals", "PeltierStorageFull", "PeltierUploadsRefused"}
    )


def test_alerts_about_load_fire(stack: Stack) -> None:
    """Many rows fill the queue, make requests slow, and keep their adapter on the device."""
    stack.prometheus.wait_for_alerts({"PeltierFileDescriptors"})

    def flood() -> None:
        predict(stack.low, "a", [TEXT] * 125)

    # Together they hold two thirds of the queue, which refuses a tenant from three quarters on.
    floods = [flood] * 14
    with repeating(*floods, lambda: predict(stack.low, "b", "bad")):
        stack.prometheus.wait_for_alerts(
            {"PeltierSlow", "PeltierQueueWaiting", "PeltierQueueFull", "PeltierLoadRefusals"}
        )


def expressions(board: Path) -> dict[str, str]:
    """The queries of a dashboard by panel, with values in place of Grafana's variables."""
    panels = [panel for panel in json.loads(board.read_text())["panels"] if panel["type"] != "row"]
    found = {f"{panel['title']} {target['refId']}": target["expr"] for panel in panels for target in panel["targets"]}
    return {
        name: re.sub(r"\$__rate_interval", WINDOW, re.sub(r"\$(instance|tenant|adapter)\b", ".*", expr))
        for name, expr in found.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_has_data(stack: Stack, name: str) -> None:
    """Each query of the dashboard, and of its variables, returns a value."""
    board = stack.dashboards / f"{name}.json"
    choices = json.loads(board.read_text())["templating"]["list"][1:]
    open_queries = expressions(board) | {
        choice["name"]: re.sub(r"label_values\((.+), (\w+)\)", r"count by (\2) (\1)", choice["query"])
        for choice in choices
    }
    assert len(open_queries) > len(choices)

    def read() -> bool | None:
        for name, expr in list(open_queries.items()):
            if stack.prometheus.query(expr):
                del open_queries[name]
        return None if open_queries else True

    # While many rows have an adapter, others wait for its place on the device.
    with repeating(lambda: predict(stack.low, "a", [TEXT] * 100), lambda: predict(stack.low, "b", "bad")):
        wait_for(read, lambda: f"no data: {open_queries}")


def test_alerts_about_failing_servers_fire(stack: Stack) -> None:
    """A version whose batches take too long, a store that is gone, a killed process, and no process at all."""
    with repeating(lambda: predict(stack.texts, "heavy", [TEXT] * 1024)):
        stack.prometheus.wait_for_alerts({"PeltierRunnerRestarted", "PeltierQuarantine"})
    store = stack.directory / "texts"
    store.rename(stack.directory / "away")
    stack.prometheus.wait_for_alerts({"PeltierNotReady"})
    (stack.directory / "away").rename(store)
    wait_for(lambda: stack.texts.client.get("/ready").is_success or None, lambda: stack.texts.log)
    stack.texts.kill()
    stack.prometheus.wait_for_alerts({"PeltierDown"})
    stack.prometheus.watch([])
    stack.prometheus.reload()
    stack.prometheus.wait_for_alerts({"PeltierAbsent"})


def test_every_alert_is_provoked() -> None:
    """The tests above name each alert of the file."""
    named = set(re.findall(r'"(Peltier[A-Z]\w+)"', Path(__file__).read_text()))
    assert named == set(ALERTS)
