"""Servers of several precisions on one store."""

from collections.abc import Callable
from unittest.mock import Mock

import pytest
from peltier_adapters.artifact.artifact import Artifact, read_artifact, to_bytes
from peltier_adapters.artifact.manifest import Golden
from peltier_adapters.batch.forward import forward
from peltier_adapters.golden import golden
from peltier_adapters.golden.golden import golden_rows
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone

from tests.server.conftest import Serve

MakeArtifact = Callable[..., bytes]


def _delicate(bert: Backbone, data: bytes) -> bytes:
    """A classifier with a thousand times the logits, less those of a golden example: there it is undecided in float32,
    and the least rounding decides."""
    artifact = read_artifact(data, bert)
    example = artifact.manifest.golden[1]
    tensors = {name: 1000 * tensor if name.startswith("head") else tensor for name, tensor in artifact.tensors.items()}
    tensors["head.bias"] = tensors["head.bias"] - 1000 * tensors["head.bias"].new_tensor(example.output)
    resident = Banks(bert).add(Artifact(artifact.manifest, tensors, "delicate"))
    outputs = forward(bert, golden_rows(bert, artifact.manifest, resident))
    recorded = tuple(
        Golden(input=old.input, output=tuple(new.logits.tolist()))
        for old, new in zip(artifact.manifest.golden, outputs, strict=False)
    )
    return to_bytes(artifact.manifest.model_copy(update={"golden": recorded}), tensors)


async def test_an_adapter_that_does_not_hold_in_int8_is_for_float32_servers(
    serve: Serve, bert: Backbone, make_artifact: MakeArtifact
) -> None:
    """A float32 server accepts it and answers. An int8 server on the same store refuses it by name, and serves the
    store's other adapters; as an upload, it refuses it too."""
    data = _delicate(bert, make_artifact(bert, "lora", name="delicate"))
    async with serve() as running:
        assert (await running.upload(data)).status_code == 201
        assert (await running.upload(make_artifact(bert, "lora", name="sound"))).status_code == 201
        assert (await running.predict("delicate", "bad")).status_code == 200
    async with serve(dtype="int8") as running:
        assert (await running.predict("sound", "bad")).status_code == 200
        answer = await running.predict("delicate", "bad")
        assert (answer.status_code, answer.json()["error"]["code"]) == (424, "inference_failed")
        message = answer.json()["error"]["message"]
        assert message.startswith(
            "adapter 'delicate' version 1 cannot be loaded: golden example 1: scores differ by 0."
        )
        assert message.endswith("; 0.125 is allowed in int8")
        assert (await running.upload(data, "again")).status_code == 422
        assert (await running.predict("delicate", "bad")).status_code == 424


@pytest.mark.parametrize(("dtype", "times"), [("float32", 0), ("int8", 1)])
async def test_an_adapter_from_the_store_is_proved_once(
    dtype: str, times: int, serve: Serve, bert: Backbone, make_artifact: MakeArtifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not again after an eviction from memory; in float32 never, because the first server proved it exactly."""
    async with serve() as running:
        assert (await running.upload(make_artifact(bert, "lora", name="a"))).status_code == 201
    judged = Mock(side_effect=golden.judge_stored)
    monkeypatch.setattr("peltier_server.residency.proving_loader.judge_stored", judged)
    async with serve(dtype=dtype, host_bytes=0) as running:
        for _ in range(2):
            answer = await running.predict("a", "bad")
            assert (answer.status_code, answer.headers["x-adapter-tier"]) == (200, "store")
            running.service.slots._device._make_room(running.service.settings.memory.device_bytes)
    assert judged.call_count == times
