"""A part that fails in the way between the store and the device: who notices, and who does not."""

import asyncio
from collections.abc import Callable

import pytest
from peltier_adapters.artifact import Artifact
from peltier_adapters.store.blobs import BlobError, Blobs
from peltier_backbone.load import Backbone

from tests.server.conftest import Serve

TEXT = "a good film"


async def fail(release: asyncio.Event) -> None:
    raise BlobError("the store is away")


async def hang(release: asyncio.Event) -> None:
    await release.wait()


@pytest.mark.parametrize(
    ("fault", "status", "code"), [(fail, 503, "unavailable"), (hang, 504, "deadline_passed")], ids=["fails", "hangs"]
)
async def test_a_load_that_goes_wrong_holds_up_nobody(
    serve: Serve,
    bert: Backbone,
    make_artifact: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[asyncio.Event], object],
    status: int,
    code: str,
) -> None:
    """Whoever asks for that adapter is told so, by its deadline at the latest; another one loads and answers in the
    meantime as ever; and once the store is well again so does the first, which is not in quarantine."""
    async with serve() as running:
        for seed, name in enumerate("ab"):
            await running.upload(make_artifact(bert, name=name, seed=seed))
        digest = running.service.catalog.find("default", "a").newest.digest
        scores = {name: await running.scores(name, TEXT) for name in "ab"}
    load, release = Blobs.load, asyncio.Event()

    async def faulty(self: Blobs, asked: str, parse: Callable[[bytes], Artifact]) -> Artifact:
        if asked == digest and not release.is_set():
            await fault(release)
        return await load(self, asked, parse)

    monkeypatch.setattr(Blobs, "load", faulty)
    async with serve() as running:
        bad = [asyncio.ensure_future(running.predict("a", TEXT, timeout_ms=2000)) for _ in range(4)]
        assert await running.scores("b", TEXT) == pytest.approx(scores["b"], abs=1e-5)
        answers = await asyncio.gather(*bad)
        assert {(one.status_code, one.json()["error"]["code"]) for one in answers} == {(status, code)}
        release.set()
        assert await running.scores("a", TEXT) == pytest.approx(scores["a"], abs=1e-5)
