"""Bounds of the texts that a T5 writes."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest.mock import patch

from peltier_adapters.artifact.artifact import read_artifact, to_bytes
from peltier_adapters.spec.tasks import MAX_BEAMS, MAX_TEMPERATURE
from peltier_server.runner.decoder import DecodeGroup

from tests.server.limits.probe import Met, probe
from tests.server.limits.servers import TEXT, Servers

probe("new tokens of a text")(lambda servers: servers.t5.predict(max_new_tokens=11))


@probe("new tokens of a text, by its task")
def _(servers: Servers) -> Met:
    made = read_artifact(servers.make_artifact(servers.backbones["t5"], task_type="text2text"), servers.backbones["t5"])
    task = made.manifest.task
    assert task.decoding is not None
    brief = task.model_copy(update={"decoding": task.decoding.model_copy(update={"max_new_tokens": 5})})
    data = to_bytes(made.manifest.model_copy(update={"task": brief}), made.tensors)
    servers.t5.upload(data, name="brief").raise_for_status()
    return replace(servers.t5, task="brief").predict(max_new_tokens=6)


probe("beams of a text", "peltier_adapters.spec.tasks.MAX_BEAMS")(
    lambda servers: servers.t5.predict(num_beams=MAX_BEAMS + 1)
)
probe("temperature", "peltier_adapters.spec.tasks.MAX_TEMPERATURE")(
    lambda servers: servers.t5.predict(temperature=MAX_TEMPERATURE + 1)
)


@probe("stop sequences of a completion", "peltier_server.protocols.openai.messages._MAX_STOPS")
def _(servers: Servers) -> Met:
    body = {"model": "demo", "prompt": TEXT, "stop": list("abcde")}
    return servers.t5.client.post("/v1/completions", json=body)


@probe("texts and beams written at once")
def _(servers: Servers) -> Met:
    step, rows = DecodeGroup.step, set()

    def watched(group: DecodeGroup) -> object:
        rows.add(group.num_rows)
        return step(group)

    with ThreadPoolExecutor() as threads, patch.object(DecodeGroup, "step", watched):
        answers = list(threads.map(servers.t5.predict, [TEXT] * 6))
    assert {answer.status_code for answer in answers} == {200}
    assert max(rows) <= 2
    return "other texts wait in the queue"
