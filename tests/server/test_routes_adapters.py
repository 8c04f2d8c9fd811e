"""Adapters over HTTP."""

from collections.abc import Callable

import pytest
from peltier_backbone.load import Backbone

from tests.server.conftest import Running


@pytest.fixture
async def shelf(running: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> Running:
    """Adapters `a` in two versions, `b`, `ba` and `c`."""
    for seed, name in enumerate(("a", "a", "b", "ba", "c")):
        assert (await running.upload(make_artifact(bert, "bitfit", name="any", seed=seed), name)).status_code == 201
    return running


async def test_an_upload_answers_with_the_version(
    running: Running, bert: Backbone, make_artifact: Callable[..., bytes]
) -> None:
    """Named by the form, or else by the manifest."""
    data = make_artifact(bert, "lora", name="mine")
    version = (await running.upload(data)).json()
    assert (version["name"], version["version"], version["size_bytes"]) == ("mine", 1, len(data))
    assert version["task"] == {
        "type": "classification", "labels": ["negative", "positive"], "inputs": "single", "max_length": 64,
    }  # fmt: skip
    assert (await running.upload(data, "other")).json()["name"] == "other"


@pytest.mark.parametrize("name", ["../../etc/passwd", "UPPER", "x" * 64, "a b", "-a", "a/b"])
async def test_a_name_that_is_no_name_is_refused(
    running: Running, bert: Backbone, make_artifact: Callable[..., bytes], name: str
) -> None:
    """Before anything is stored."""
    answer = await running.upload(make_artifact(bert, "bitfit"), name)
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid_input"


async def test_a_form_with_unknown_or_missing_parts_is_refused(running: Running) -> None:
    """Silence about a part that is not understood would promise what does not happen."""
    post = running.client.post
    missing = await post("/v1/adapters", files={"wrong": b"x"})
    unknown = await post("/v1/adapters", files={"file": b"x"}, data={"alias": "production"})
    text = await post("/v1/adapters", data={"file": "just text"})
    for answer, sentence in ((missing, "file is missing"), (unknown, "alias is unknown here"), (text, "file")):
        assert answer.status_code == 422
        assert sentence in answer.json()["error"]["message"]


async def test_an_artifact_may_be_large_but_not_endless(serve: Callable[..., object]) -> None:
    """Uploads have a limit of their own."""
    async with serve(max_artifact_bytes=3_000_000, max_body_bytes=1_000) as running:
        assert (await running.upload(b"x" * 2_500_000)).status_code == 422
        assert (await running.upload(b"x" * 3_200_000)).status_code == 413


async def test_adapters_are_listed_in_pages(shelf: Running) -> None:
    """In order of name; the cursor of one page leads to the next, and nothing comes twice."""
    names, cursor = [], ""
    while cursor is not None:
        page = (await shelf.client.get("/v1/adapters", params={"limit": 2, "cursor": cursor})).json()
        names += [adapter["name"] for adapter in page["adapters"]]
        cursor = page["next_cursor"]
    assert names == ["a", "b", "ba", "c"]


async def test_adapters_are_found_by_a_part_of_their_name(shelf: Running) -> None:
    """`q` is text, not a pattern."""
    found = (await shelf.client.get("/v1/adapters", params={"q": "a"})).json()["adapters"]
    assert [(adapter["name"], adapter["num_versions"]) for adapter in found] == [("a", 2), ("ba", 1)]
    assert (await shelf.client.get("/v1/adapters", params={"q": "*"})).json()["adapters"] == []


async def test_an_adapter_and_its_versions(shelf: Running) -> None:
    """The newest first."""
    adapter = (await shelf.client.get("/v1/adapters/a")).json()
    versions = (await shelf.client.get("/v1/adapters/a/versions")).json()["versions"]
    assert [version["version"] for version in versions] == [2, 1]
    assert adapter["latest"] == versions[0]


async def test_a_download_is_the_upload(running: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """Bit by bit; a caller who has the bytes already gets none."""
    data = make_artifact(bert)
    digest = (await running.upload(data)).json()["digest"]
    url = "/v1/adapters/demo/versions/1/artifact"
    answer = await running.client.get(url)
    assert answer.content == data
    assert answer.headers["etag"] == f'"{digest}"'
    assert (await running.client.get(url, headers={"if-none-match": f'"{digest}"'})).status_code == 304
    assert (await running.client.get(url, headers={"if-none-match": '"sha256:other"'})).status_code == 200


async def test_deleting_a_version_and_an_adapter(shelf: Running) -> None:
    """204, then 404; a bare name falls back to the version that is left."""
    delete = shelf.client.delete
    assert (await delete("/v1/adapters/a/versions/2")).status_code == 204
    assert (await delete("/v1/adapters/a/versions/2")).json()["error"]["code"] == "version_not_found"
    assert (await shelf.predict("a", "bad")).json()["adapter"]["version"] == 1
    assert (await delete("/v1/adapters/a")).status_code == 204
    assert (await delete("/v1/adapters/a")).json()["error"]["code"] == "adapter_not_found"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/adapters/nope", 404),
        ("GET", "/v1/adapters/nope/versions", 404),
        ("GET", "/v1/adapters/nope/versions/1/artifact", 404),
        ("GET", "/v1/adapters/a/versions/x/artifact", 422),
        ("GET", "/v1/adapters/a/versions/0/artifact", 422),
        ("DELETE", "/v1/adapters/a/versions/99999999999999999999", 422),
        ("GET", "/v1/adapters?limit=0", 422),
        ("GET", "/v1/adapters?limit=x", 422),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/adapters/..%2f..%2fetc", 404),
    ],
)
async def test_wrong_addresses(shelf: Running, method: str, path: str, status: int) -> None:
    """Each has the contract's shape."""
    answer = await shelf.client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


async def test_a_wrong_method_names_the_right_ones(running: Running) -> None:
    """Of all routes at the address."""
    answer = await running.client.put("/v1/adapters")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, POST"
    assert answer.json()["error"]["message"] == "this address takes GET, POST, not PUT"
