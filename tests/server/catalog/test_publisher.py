"""Which uploads go live, which do not, and what deletion leaves behind."""

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact, to_bytes
from peltier_backbone.backbone import Backbone
from peltier_store.blobs.blobs import BlobStoreFull, digest_of
from peltier_store.registry.errors import RegistryError

from tests.server.conftest import IN_ONE_LOOP, Running, Serve, hold, until
from tests.server.gate import Gate

pytestmark = IN_ONE_LOOP


@pytest.fixture
def running(app_caller: Running) -> Running:
    """A new tenant of the module's server."""
    return app_caller


def changed(data: bytes, backbone: Backbone, update: dict[str, object], **tensors: torch.Tensor) -> bytes:
    """A valid file whose manifest or tensors were changed after the golden examples were recorded."""
    artifact = read_artifact(data, backbone)
    manifest = artifact.manifest.model_copy(update=update)
    return to_bytes(manifest, {**artifact.tensors, **{name.replace("__", "."): t for name, t in tensors.items()}})


def stored_files(store: Path) -> list[Path]:
    return [path for path in (store / "blobs" / "sha256").iterdir() if path.is_file()]


def stored(running: Running) -> list[Path]:
    """The files of the server's artifacts."""
    return stored_files(Path(str(running.service.settings.store.store)))


async def test_the_same_bytes_are_the_same_version(running, bert, make_artifact):
    """A repeated upload is acknowledged with 200 and makes nothing new; under another name it is another adapter."""
    data = make_artifact(bert, name="a")
    first, again, other = [await running.upload(data), await running.upload(data), await running.upload(data, "b")]
    assert [answer.status_code for answer in (first, again, other)] == [201, 200, 201]
    assert again.json() == {**first.json(), "created": False}
    assert (other.json()["name"], other.json()["version"]) == ("b", 1)


async def test_golden_examples_of_different_uploads_and_predictions_share_a_batch(serve, bert, make_artifact):
    """Each upload alone would be a small batch, which computes its rows more slowly."""
    async with serve() as running:  # without another tenant, beside whom a batch may be smaller
        await running.upload(make_artifact(bert, name="live"))
        artifacts = [make_artifact(bert, name=f"a-{seed}", seed=seed) for seed in (1, 2, 3)]
        async with hold(running):
            requests = [asyncio.ensure_future(running.upload(data)) for data in artifacts]
            requests.append(asyncio.ensure_future(running.predict("live", "a good film")))
            num_rows = 1 + sum(1 + len(read_artifact(data, bert).manifest.golden) for data in artifacts)
            await until(lambda: len(running.service.batcher._rows) == num_rows)
            before = batches_of(running)
        answers = await asyncio.gather(*requests)
        batches, adapters = (after - early for after, early in zip(batches_of(running), before, strict=True))
    assert [answer.status_code for answer in answers] == [201, 201, 201, 200]
    assert (batches, adapters) == (1, 4)
    assert answers[-1].json()["batch"] == {"rows": num_rows, "adapters": 4}


def batches_of(running: Running) -> tuple[float, float]:
    """How many batches the server has computed, and the distinct adapters of all of them together."""
    adapters = running.service.metrics.batch_adapters
    return sum(adapters.counts), adapters.total


async def test_an_adapter_that_does_not_prove_itself_is_refused(running, bert, make_artifact):
    """Weights that do not give the recorded answers never go live, and nothing of them is stored."""
    data, before, used_bytes = make_artifact(bert, name="a"), stored(running), running.service.slots.device.used_bytes
    bias = read_artifact(data, bert).tensors["head.bias"]
    answer = await running.upload(changed(data, bert, {}, head__bias=bias.flip(0) + 1.0))
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["code"] == "artifact_refused"
    assert any("golden example 0" in reason for reason in error["details"])
    assert (await running.predict("a", "bad")).status_code == 404
    assert stored(running) == before
    await until(lambda: running.service.slots.device.used_bytes == used_bytes)


async def test_weights_that_overflow_are_refused(running, bert, make_artifact):
    data = make_artifact(bert, name="a")
    huge = torch.full_like(read_artifact(data, bert).tensors["head.weight"], 3e38)
    answer = await running.upload(changed(data, bert, {}, head__weight=huge))
    assert answer.status_code == 422
    assert "not finite" in answer.json()["error"]["message"]


async def test_another_backbone_is_named(running, roberta, make_artifact, bert):
    answer = await running.upload(make_artifact(roberta, "lora", name="a"))
    assert answer.status_code == 422
    reasons = " ".join(answer.json()["error"]["details"])
    assert roberta.fingerprint in reasons
    assert bert.fingerprint in reasons


async def test_a_metric_that_is_not_a_number_survives(running, bert, make_artifact):
    """Training may record NaN, which JSON on the wire cannot have and the registry must keep."""
    data = make_artifact(bert, name="a")
    training = read_artifact(data, bert).manifest.training
    update = {"training": training.model_copy(update={"metrics": {"accuracy": 0.5, "f1": float("nan")}})}
    answer = await running.upload(changed(data, bert, update))
    assert answer.status_code == 201, answer.text
    assert answer.json()["metrics"] == {"accuracy": 0.5}
    (version,) = (one for one in await running.service.store.registry.versions() if one.tenant == running.tenant)
    assert "f1" in json.loads(version.manifest)["training"]["metrics"]


# What making a version durable takes, in order.
STEPS = ("reserve", "put", "publish")


def owner_of(running: Running, step: str) -> object:
    """Whose method the step is."""
    store = running.service.store
    return store.blobs if step == "put" else store.registry


def failing(error: Exception) -> Callable[..., object]:
    async def fail(*_: object, **__: object) -> None:
        raise error

    return fail


async def is_garbage(running: Running, data: bytes) -> bool:
    """Whether neither a version nor an upload needs the bytes."""
    registry, digest = running.service.store.registry, digest_of(data)
    found = await registry.begin_collection([digest])
    await registry.end_collection(found)
    return found == {digest}


@pytest.mark.parametrize("step", STEPS)
async def test_a_caller_who_hangs_up_during_a_commit_leaves_a_whole_version(
    running: Running, bert: Backbone, make_artifact: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It goes live as if the caller had waited, and its bytes are not reserved beyond that."""
    data, owner = make_artifact(bert, "bitfit", seed=10 + STEPS.index(step), name="a"), owner_of(running, step)
    gate = Gate(getattr(owner, step))
    monkeypatch.setattr(owner, step, gate)
    uploading = asyncio.create_task(running.upload(data))
    await gate.reached()
    uploading.cancel()
    await asyncio.gather(uploading, return_exceptions=True)
    gate.opened.set()
    await until(lambda: running.service.catalog.find(running.tenant, "a"))
    assert (await running.predict("a", "bad")).status_code == 200
    registry = running.service.store.registry
    assert not await is_garbage(running, data)
    await registry.delete_adapter(running.tenant, "a", actor="test")
    await registry.purge(timedelta(hours=-1), actor="test")
    assert await is_garbage(running, data)


@pytest.mark.parametrize("step", STEPS)
async def test_an_upload_that_fails_leaves_nothing(running, bert, make_artifact, monkeypatch, step):
    """No version, nothing on the device and no reservation: its bytes are garbage at once, and the next upload of
    them is as good as the first."""
    data, owner = make_artifact(bert, "bitfit", seed=20 + STEPS.index(step), name="a"), owner_of(running, step)
    used_bytes = running.service.slots.device.used_bytes
    with monkeypatch.context() as broken:
        broken.setattr(owner, step, failing(RegistryError("the registry 'x' failed: no route to it")))
        answer = await running.upload(data)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert (await running.predict("a", "bad")).status_code == 404
    await until(lambda: running.service.slots.device.used_bytes == used_bytes)
    assert await is_garbage(running, data)
    again = await running.upload(data)
    assert (again.status_code, again.json()["version"]) == (201, 1)


async def test_a_release_that_fails_does_not_hide_why_an_upload_failed(
    running: Running,
    bert: Backbone,
    make_artifact: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The reservation ends by itself; the caller learns of the disk that is full, the operator in one line."""
    monkeypatch.setattr(owner_of(running, "put"), "put", failing(BlobStoreFull("no space left")))
    monkeypatch.setattr(running.service.store.registry, "release", failing(RegistryError("no route to it")))
    answer = await running.upload(make_artifact(bert, "bitfit", name="a"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "storage_full")
    (record,) = (record for record in caplog.records if record.levelno > logging.INFO)
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert record.getMessage().endswith(": no space left")


async def test_memory_is_free_after_the_last_version_that_has_the_bytes(running, bert, make_artifact):
    """Two names share a blob until both are gone; the store keeps it until they can no longer be undeleted."""
    data, before, used_bytes = make_artifact(bert, seed=30), stored(running), running.service.slots.device.used_bytes
    for name in ("a", "b"):
        await running.upload(data, name)
    await running.client.delete("/v1/adapters/a")
    assert len(stored(running)) == len(before) + 1
    assert (await running.predict("b", "bad")).status_code == 200
    await running.client.delete("/v1/adapters/b/versions/1")
    await until(lambda: running.service.slots.device.used_bytes == used_bytes)
    assert len(stored(running)) == len(before) + 1


async def test_deleting_while_predicting_fails_no_accepted_row(running, bert, make_artifact, hold_runner):
    """A row that waits when its version is deleted is still answered by it."""
    await running.upload(make_artifact(bert, name="a"))
    expected = await running.scores("a", "bad")
    async with hold_runner():
        waiting = asyncio.ensure_future(running.scores("a", "bad"))
        await until(lambda: running.service.batcher.queued_tokens)
        assert (await running.client.delete("/v1/adapters/a")).status_code == 204
        assert (await running.predict("a", "bad")).status_code == 404
    assert await waiting == pytest.approx(expected, abs=1e-6)


async def test_a_damaged_blob_fails_its_adapter_alone(serve, bert, make_artifact, tmp_path):
    """A disk error in one file is a clear error for one task, whose bytes are not read again for each request."""
    async with serve() as running:
        for seed, name in enumerate("ab"):
            await running.upload(make_artifact(bert, name=name, seed=seed))
        damaged = running.service.catalog.get("default", "a").newest.digest.removeprefix("sha256:")
    path = tmp_path / "store" / "blobs" / "sha256" / damaged
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])
    async with serve() as running:
        answer = await running.predict("a", "bad")
        assert (answer.status_code, answer.json()["error"]["code"]) == (424, "inference_failed")
        assert "adapter 'a' version 1 cannot be loaded" in answer.json()["error"]["message"]
        for _ in range(2):
            await running.predict("a", "bad")
        answer = await running.predict("a", "bad")
        assert answer.status_code == 424
        assert "is in quarantine on this replica after 3 failures in a row" in answer.json()["error"]["message"]
        assert (await running.predict("b", "bad")).status_code == 200


async def test_a_store_that_is_away_is_503_and_says_nothing_of_itself(serve, bert, make_artifact, tmp_path, caplog):
    """Clients try again; where the store is stands in the log, under the request's id."""
    async with serve() as running:
        await running.upload(make_artifact(bert, name="a"))
    async with serve() as running:
        blobs = tmp_path / "store" / "blobs" / "sha256"
        away = blobs.rename(tmp_path / "away")
        blobs.touch()
        answer = await running.predict("a", "bad")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
        assert "retry-after" in answer.headers
        assert "store/" not in answer.text
        request_id = answer.headers["x-request-id"]
        assert f"request {request_id}: default's adapter 'a' version 1 cannot be loaded" in caplog.text
        assert str(tmp_path) in caplog.text
        blobs.unlink()
        away.rename(blobs)
        assert (await running.predict("a", "bad")).status_code == 200


async def test_an_adapter_of_a_higher_bound_stays_and_serves_again_under_it(serve, bert, make_artifact):
    data = make_artifact(bert, "phm", name="a", overrides={"bottleneck": "192"})
    async with serve(max_adapter_cost=3) as running:
        assert (await running.upload(data)).status_code == 201
    async with serve() as running:
        answer = await running.predict("a", "bad")
        assert (answer.status_code, "(max_adapter_cost)" in answer.json()["error"]["message"]) == (424, True)
        assert (await running.client.get("/v1/adapters/a/versions/1/artifact")).content == data
    async with serve(max_adapter_cost=3) as running:
        assert (await running.predict("a", "bad")).status_code == 200


async def test_a_store_of_another_backbone_is_kept_and_does_not_answer(
    serve: Callable[..., object],
    bert: Backbone,
    make_artifact: Callable[..., bytes],
    roberta_directory: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An operator who starts the wrong backbone loses nothing, and callers read why."""
    async with serve() as running:
        await running.upload(make_artifact(bert, name="a"))
    async with serve(backbone=str(roberta_directory)) as running:
        assert "1 versions were trained on another backbone" in caplog.text
        error = (await running.predict("a", "bad")).json()["error"]
        mixed = (await running.predict_mixed({"task": "a", "input": "bad"})).json()["results"][0]["error"]
    assert error["code"] == mixed["code"] == "inference_failed"
    assert bert.fingerprint in error["message"] or "family" in error["message"]
    async with serve() as running:
        assert (await running.predict("a", "bad")).status_code == 200


async def test_the_backbone_is_untouched(bert, make_artifact, serve):
    """The weights have the same hash before and after adapters of every kind have passed through the server."""
    async with serve() as running:
        before = running.service.backbone.weights_digest()
        for preset in ("compacter", "lora", "prefix", "bitfit", "unipelt-apl", "adamix"):
            assert (await running.upload(make_artifact(bert, preset, name=preset))).status_code == 201
            assert (await running.predict(preset, ["a good film", "bad"])).status_code == 200
        assert running.service.backbone.weights_digest() == before


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
async def test_a_server_that_rounds_allows_what_rounding_does_to_an_adapter(
    dtype: str, serve: Serve, t5_gated: Backbone, t5_gated_directory: Path, make_artifact: Callable[..., bytes]
) -> None:
    """An adapter that carries rounding far goes live; one whose recorded scores are further away does not, and nothing
    of it is left."""
    sound = make_artifact(t5_gated, "adamix-lora", name="sound", labels=("a", "b"), seed=1)
    artifact = read_artifact(sound, t5_gated)
    far = [
        one.model_copy(update={"output": tuple(1.5 * value for value in one.output)})
        for one in artifact.manifest.golden
    ]
    async with serve(backbone=t5_gated_directory, dtype=dtype) as running:
        assert (await running.upload(sound)).status_code == 201
        answer = await running.upload(changed(sound, t5_gated, {"golden": tuple(far)}), "far")
        assert answer.status_code == 422
        assert f"0.25 is allowed in {dtype}" in answer.json()["error"]["message"]
        assert running.service.slots.device.used_bytes == artifact.nbytes
        assert 'peltier_adapters{tier="host"} 1.0' in (await running.client.get("/metrics")).text


async def test_a_server_that_rounds_refuses_a_wrong_tensor_that_moves_its_answers_less_than_rounding(
    serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes]
) -> None:
    """By the output on the backbone's substitute; nothing of the upload is left. A file of an older release has no such
    output and is accepted, as before."""
    sound = make_artifact(bert, "houlsby", name="sound")
    own, other = (read_artifact(data, bert) for data in (sound, make_artifact(bert, "houlsby", seed=9)))
    name = "bottleneck.down.bias"
    wrong = to_bytes(own.manifest, {**own.tensors, name: other.tensors[name]})
    async with serve(dtype="int8") as running:
        answer = await running.upload(wrong, "wrong")
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "artifact_refused")
        (reason,) = answer.json()["error"]["details"]
        assert reason.startswith("the adapter's weights are not those of the recorded outputs")
        assert running.service.slots.device.used_bytes == 0
        assert (await running.upload(sound)).status_code == 201
        older = changed(wrong, bert, {"substitute_output": None})
        assert (await running.upload(older, "older")).status_code == 201
