"""Routes about the server itself."""

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from peltier_adapters.artifact.manifest import Manifest
from peltier_adapters.ops.choice import choose_backend
from peltier_backbone.backbone import Backbone
from peltier_backbone.native.choice import kernels_in_use

from tests.server.conftest import Running
from tests.support.levels import LEVELS


async def test_info_describes_what_runs(caller: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """The backbone that adapters are checked against, the kernels chosen, the limits in force."""
    await caller.upload(make_artifact(bert))
    info = (await caller.client.get("/info")).json()
    assert info["backbone"]["fingerprint"] == bert.fingerprint
    assert (info["backbone"]["device"], info["backbone"]["dtype"]) == ("cpu", "float32")
    assert info["kernels"] == bert.kernels | {"adapters": choose_backend(torch.device("cpu"), torch.float32).name}
    assert info["limits"]["max_inputs"] == 1024
    assert info["num_adapters"] == 1
    assert info["experimental"] == []
    # The fields of text-embeddings-inference.
    assert (info["model_id"], info["model_dtype"], info["max_client_batch_size"]) == (bert.name, "float32", 1024)


@pytest.mark.parametrize("kernels", [LEVELS[-1], "torch"])
async def test_a_server_uses_the_kernels_of_its_setting(kernels, serve, tmp_path, caplog):
    """`/info` and a line of the log name the level, what torch computes and why, and what is promised of answers."""
    caplog.set_level(logging.INFO)
    with kernels_in_use("auto"):  # the setting of the process is restored
        async with serve(store=tmp_path / "store", kernels=kernels) as running:
            info = (await running.client.get("/info")).json()["kernels"]
    native = kernels != "torch"
    assert (info["level"], info["adapters"]) == (kernels, f"native-{kernels}" if native else "torch")
    assert info["answers"] == f"equal {'to the last bit' if native else 'within rounding'} in every batch"
    assert ("the setting kernels is torch" in info.get("torch", "")) != native
    (line,) = [line for line in caplog.messages if line.startswith("kernels of ")]
    assert f"level: {kernels}" in line
    assert line.endswith(f"answers are {info['answers']}")


async def test_info_names_a_device_on_which_nothing_was_tested(caller, monkeypatch):
    """CUDA, until the benchmark of the kernels has passed on a GPU."""
    on_gpu = replace(caller.service.backbone, device=torch.device("cuda"))
    monkeypatch.setattr(caller.service, "backbone", on_gpu)
    assert (await caller.client.get("/info")).json()["experimental"] == ["cuda"]


async def test_the_schema_of_artifacts_is_published(caller: Running) -> None:
    assert (await caller.client.get("/v1/schema/artifact")).json() == Manifest.model_json_schema()


async def test_what_nobody_expected_is_a_500_without_a_traceback(caller: Running, monkeypatch, caplog) -> None:
    """The caller gets the id under which the log has the reason."""
    monkeypatch.setattr(caller.service.catalog, "get", lambda tenant, name: 1 / 0)
    answer = await caller.client.get("/v1/adapters/a")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert answer.headers["x-request-id"] in answer.json()["error"]["message"]
    assert "ZeroDivisionError" not in answer.text
    assert answer.headers["x-request-id"] in caplog.text
