"""The core serves without any extension. `--core-alone` runs its other tests so too."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import peltier_server
import pytest
from peltier_server.app import create_app
from peltier_server.extensions.settings import Settings

from tests.server.conftest import ADMIN, Running, make_client

# What starts a server, with or without extensions.
_ABOVE = {"app", "cli", "doctor", "extensions"}


@pytest.fixture
async def core(settings_of: Callable[..., Settings]) -> AsyncIterator[Running]:
    """A server without extensions, and the operator's client."""
    app = create_app(settings_of(admin_key=ADMIN), extensions=())
    async with app.router.lifespan_context(app), make_client(app, ADMIN) as client:
        await app.state.lifecycle.settled()
        yield Running(app, client, app.state.lifecycle.service())


async def test_adapters_are_published_and_answer(core, bert, make_artifact):
    for seed in (1, 2):
        assert (await core.upload(make_artifact(bert, "compacter", seed=seed), "mood")).status_code == 201
    aliased = await core.client.put("/v1/adapters/mood/aliases/best", json={"version": 1})
    assert aliased.status_code == 200, aliased.text
    alone = [await core.scores(task, "a good film") for task in ("mood@best", "mood@2")]
    mixed = await core.predict_tasks("mood@best", "mood@2")
    assert [list(one["predictions"][0]["scores"].values()) for one in mixed.json()["results"]] == alone
    listed = await core.client.get("/v1/adapters")
    assert [one["name"] for one in listed.json()["adapters"]] == ["mood"]
    shaped = await core.client.post("/v2/models/mood/infer", json={"inputs": [
        {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a good film"]}
    ]})  # fmt: skip
    assert shaped.status_code == 200, shaped.text
    embedded = await core.client.post("/v1/embeddings", json={"model": "mood", "input": "a good film"})
    assert embedded.json()["error"]["type"] == "invalid_request_error"


async def test_tenants_have_keys_and_are_measured(core: Running) -> None:
    async with core.enter("predict") as entered:
        assert (await entered.client.get("/v1/adapters")).status_code == 200
        assert (await entered.client.get("/metrics")).status_code == 403
    page = (await core.client.get("/metrics")).text
    assert "peltier_ready 1" in page
    assert "peltier_trainings" not in page


@pytest.mark.parametrize("path", ["/console/", "/v1/trainings", "/v1/files", "/v1/batches", "/v1/fine_tuning/jobs"])
async def test_what_extensions_serve_is_unknown(core: Running, path: str) -> None:
    answer = await core.client.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_the_core_imports_no_extension() -> None:
    """Not even on the way: each of its modules is imported by itself."""
    root = Path(peltier_server.__file__).parent
    files = [path for path in root.rglob("*.py") if path.relative_to(root).parts[0].removesuffix(".py") not in _ABOVE]
    names = [".".join(("peltier_server", *path.relative_to(root).with_suffix("").parts)) for path in files]
    code = (
        f"import importlib, sys\nfor name in {names}:\n    importlib.import_module(name.removesuffix('.__init__'))\n"
        "print(sorted(name for name in sys.modules if name.startswith('peltier_server.extensions')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
