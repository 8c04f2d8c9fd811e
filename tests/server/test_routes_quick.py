"""The short way of predictions, and the framework's beside it."""

import json
from collections.abc import Callable

import httpx2
import pytest
from peltier_backbone.load import Backbone

from tests.server.conftest import Running

# A content type with a parameter is not the plain one, so that the framework reads the body.
QUICK, USUAL = "application/json", "application/json; charset=utf-8"


@pytest.fixture
async def loaded(running: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> Running:
    """A server with one adapter."""
    assert (await running.upload(make_artifact(bert, "compacter", name="sst2"))).status_code == 201
    return running


async def ask(running: Running, body: bytes, content_type: str) -> httpx2.Response:
    headers = {"content-type": content_type}
    return await running.client.post("/v1/tasks/sst2/predict", content=body, headers=headers)


async def test_both_ways_give_one_answer(loaded: Running) -> None:
    """But for the timings; the headers have the same names."""
    body = json.dumps({"inputs": ["a good film", "bad"], "parameters": {"top_k": 1}}).encode()
    quick, usual = [await ask(loaded, body, kind) for kind in (QUICK, USUAL)]
    assert quick.status_code == 200
    assert {**quick.json(), "timings_ms": None} == {**usual.json(), "timings_ms": None}
    assert quick.headers.keys() == usual.headers.keys()
    assert quick.headers["content-type"] == QUICK


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[" * 2000, b"null", b'{"inputs": 5}', b'{"inputs": ["a"], "more": 1}', b"[1]"]
)
async def test_a_wrong_body_is_refused_in_the_same_words(loaded: Running, body: bytes) -> None:
    """Whichever way it comes."""
    quick, usual = [await ask(loaded, body, kind) for kind in (QUICK, USUAL)]
    assert 400 <= quick.status_code < 500
    assert (quick.status_code, quick.json()) == (usual.status_code, usual.json())


async def test_a_body_that_is_no_json_by_name_is_refused(loaded: Running) -> None:
    """Whatever is in it."""
    answer = await ask(loaded, b'{"inputs": "a good film"}', "text/plain")
    assert answer.status_code == 400
