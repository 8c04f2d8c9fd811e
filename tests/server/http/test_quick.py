"""The direct path of small predictions, compared with the path through the framework."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest
from peltier_backbone.load import Backbone

from tests.server.conftest import Running, Serve

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


async def test_both_ways_say_what_was_truncated(loaded: Running) -> None:
    """In the body and in a header, which is absent where nothing was; a refusal is worded alike."""
    for long, said in ((("good " * 200, "bad", "film " * 63), "2"), (("bad", "film " * 62), None)):
        body = json.dumps({"inputs": long}).encode()
        quick, usual = [await ask(loaded, body, kind) for kind in (QUICK, USUAL)]
        assert quick.json()["usage"] == usual.json()["usage"]
        assert quick.json()["usage"]["truncated_inputs"] == int(said or 0)
        assert quick.headers.get("x-truncated-inputs") == usual.headers.get("x-truncated-inputs") == said
    body = json.dumps({"inputs": ["bad", "good " * 200, "film " * 63], "parameters": {"truncate": False}}).encode()
    quick, usual = [await ask(loaded, body, kind) for kind in (QUICK, USUAL)]
    assert (quick.status_code, quick.json()) == (usual.status_code, usual.json())
    assert quick.json()["error"]["details"] == [
        "input 1: the input has 202 tokens; this task takes at most 64",
        "input 2: the input has 65 tokens; this task takes at most 64",
    ]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[" * 2000, b"null", b'{"inputs": 5}', b'{"inputs": ["a"], "more": 1}', b"[1]"]
)
async def test_a_wrong_body_is_refused_in_the_same_words(loaded: Running, body: bytes) -> None:
    """Whichever way it comes."""
    quick, usual = [await ask(loaded, body, kind) for kind in (QUICK, USUAL)]
    assert 400 <= quick.status_code < 500
    assert (quick.status_code, quick.json()) == (usual.status_code, usual.json())


async def test_a_body_that_is_no_json_by_name_is_refused(loaded: Running) -> None:
    """For any content."""
    answer = await ask(loaded, b'{"inputs": "a good film"}', "text/plain")
    assert answer.status_code == 400


async def test_a_wrong_body_counts_once(loaded: Running) -> None:
    """Although both ways ask for the tenant's quotas."""
    assert (await loaded.client.put("/v1/tenants/default", json={"requests_per_second": 0.02})).status_code == 200
    answer = await ask(loaded, b"{}", QUICK)
    assert (answer.status_code, answer.headers["ratelimit-remaining"]) == (422, "1")


async def test_a_body_in_pieces_is_read_whole(loaded: Running) -> None:
    """The framework gets the piece that has been read before it was asked."""
    body = b'{"inputs": "a good film"}'

    async def pieces() -> AsyncIterator[bytes]:
        yield body[:9]
        yield body[9:]

    headers = {"content-type": QUICK, "content-length": str(len(body))}
    answer = await loaded.client.post("/v1/tasks/sst2/predict", content=pieces(), headers=headers)
    assert answer.status_code == 200, answer.text


async def test_of_a_header_that_is_there_twice_the_first_counts(loaded: Running) -> None:
    """As the framework has it."""
    headers = [("content-type", "text/plain"), ("content-type", QUICK)]
    answer = await loaded.client.post("/v1/tasks/sst2/predict", content=b'{"inputs": "a good film"}', headers=headers)
    assert answer.status_code == 400


async def test_a_body_that_does_not_come_is_408(serve: Serve) -> None:
    """What goes wrong before the body is there is answered in the same place."""

    async def pieces() -> AsyncIterator[bytes]:
        await asyncio.sleep(0.5)
        yield b"{}"

    headers = {"content-type": QUICK, "content-length": "2"}
    async with serve(stall_seconds=0.05) as running:
        answer = await running.client.post("/v1/tasks/sst2/predict", content=pieces(), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (408, "too_slow")
