"""Adapters over HTTP."""

from collections.abc import Callable
from math import prod

import pytest
from peltier_adapters.artifact.manifest import read_header
from peltier_backbone.backbone import Backbone

from tests.server.conftest import Running


@pytest.fixture
async def shelf(caller: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> Running:
    *two, b, ba, c = (make_artifact(bert, "bitfit", name="any", seed=seed) for seed in range(5))
    await caller.publish("a", *two)
    for name, data in (("b", b), ("ba", ba), ("c", c)):
        await caller.publish(name, data)
    return caller


async def test_an_upload_answers_with_the_version(caller, bert, make_artifact):
    data = make_artifact(bert, "lora", name="mine")
    version = (await caller.upload(data)).json()
    assert (version["name"], version["version"], version["size_bytes"]) == ("mine", 1, len(data))
    assert version["task"] == {
        "type": "classification", "labels": ["negative", "positive"], "inputs": "single", "max_length": 64,
    }  # fmt: skip
    assert (await caller.upload(data, "other")).json()["name"] == "other"


NO_NAMES = ["../../etc/passwd", "UPPER", "x" * 64, "a b", "-a", "a/b"]


async def test_a_name_that_is_no_name_is_refused(caller, bert, make_artifact):
    for name in NO_NAMES:
        answer = await caller.upload(make_artifact(bert, "bitfit"), name)
        assert answer.status_code == 422, name
        assert answer.json()["error"]["code"] == "invalid_input", name


async def test_a_form_with_unknown_or_missing_parts_is_refused(caller: Running) -> None:
    """Silence about a part that is not understood would promise what does not happen."""
    post = caller.client.post
    missing = await post("/v1/adapters", files={"wrong": b"x"})
    unknown = await post("/v1/adapters", files={"file": b"x"}, data={"tags": "production"})
    text = await post("/v1/adapters", data={"file": "just text"})
    # Who knows what stored bytes are called does not have them for that.
    named = await post("/v1/adapters", data={"digest": f"sha256:{64 * 'a'}"})
    refusals = (
        (missing, "file is missing"), (unknown, "tags is unknown here"), (text, "file"), (named, "file is missing"),
    )  # fmt: skip
    for answer, sentence in refusals:
        assert answer.status_code == 422
        assert sentence in answer.json()["error"]["message"]


async def test_adapters_are_listed_in_pages(shelf: Running) -> None:
    names, cursor = [], ""
    while cursor is not None:
        page = (await shelf.client.get("/v1/adapters", params={"limit": 2, "cursor": cursor})).json()
        names += [adapter["name"] for adapter in page["adapters"]]
        cursor = page["next_cursor"]
    assert names == ["a", "b", "ba", "c"]


async def test_adapters_are_found_by_a_part_of_their_name(shelf: Running) -> None:
    found = (await shelf.client.get("/v1/adapters", params={"q": "a"})).json()["adapters"]
    assert [(adapter["name"], adapter["num_versions"]) for adapter in found] == [("a", 2), ("ba", 1)]
    assert (await shelf.client.get("/v1/adapters", params={"q": "*"})).json()["adapters"] == []


async def test_an_adapter_in_a_list_has_its_first_aliases(shelf: Running) -> None:
    for letter in "ihgfedcba":
        await shelf.client.put(f"/v1/adapters/a/aliases/{letter}", json={"version": 1})
    first, second = (await shelf.client.get("/v1/adapters", params={"limit": 2})).json()["adapters"]
    assert (first["aliases"], second["aliases"]) == (list("abcdefgh"), [])


async def test_an_adapter_and_its_versions(shelf: Running) -> None:
    adapter = (await shelf.client.get("/v1/adapters/a")).json()
    versions = (await shelf.client.get("/v1/adapters/a/versions")).json()["versions"]
    assert [version["version"] for version in versions] == [2, 1]
    assert adapter["latest"] == (await shelf.client.get("/v1/adapters/a/versions/2")).json()
    assert (await shelf.client.get("/v1/adapters/a/versions/9")).status_code == 404


async def test_versions_are_listed_in_pages(shelf, bert, make_artifact):
    """The newest first, and nothing twice, also where one is deleted between two pages."""
    await shelf.publish("a", *(make_artifact(bert, "bitfit", seed=seed) for seed in (2, 3, 4)))
    numbers, cursor = [], ""
    while cursor is not None:
        page = (await shelf.client.get("/v1/adapters/a/versions", params={"limit": 2, "cursor": cursor})).json()
        numbers += [version["version"] for version in page["versions"]]
        cursor = page["next_cursor"]
        await shelf.client.delete("/v1/adapters/a/versions/4")
    assert numbers == [5, 4, 3, 2, 1]


async def test_an_entry_of_a_list_is_small(caller, bert, make_artifact):
    """Of an adapter with very many long labels, aliases, versions in its split and a long deprecation: under 8 KiB."""
    labels = [f"{number} {'é' * 200}" for number in range(1000)]
    assert (await caller.upload(make_artifact(bert, "bitfit", labels=labels), "a" * 63)).status_code == 201
    client, url = caller.client, f"/v1/adapters/{'a' * 63}"
    for number in range(5):
        assert (await client.put(f"{url}/aliases/{'b' * 60}{number}", json={"version": 1})).status_code == 200
    assert (await client.post(f"{url}/versions/1/deprecate", json={"reason": "\x01" * 1000})).status_code == 200
    for path, entries in (("/v1/adapters", "adapters"), (f"{url}/versions", "versions")):
        answer = await client.get(path)
        assert len(answer.json()[entries]) == 1
        assert len(answer.content) < 8 * 1024
    assert (await client.get("/v1/adapters")).json()["adapters"][0]["latest"]["task"]["num_labels"] == 1000
    assert (await client.get(url)).json()["latest"]["task"]["labels"] == labels


async def test_a_manifest_is_that_of_the_artifact(caller, bert, make_artifact):
    """With its golden examples; the blocks of a part and what they share are all of its parameters."""
    data = make_artifact(bert, "compacter", name="a")
    await caller.upload(data)
    answer = (await caller.client.get("/v1/adapters/a/versions/1/manifest")).json()
    manifest, tensors = read_header(data)
    assert answer["manifest"] == manifest.model_dump(mode="json")
    sizes = {part["kind"]: part["parameters"] for part in answer["parts"]}
    assert sum(sizes.values()) == sum(prod(tensor["shape"]) for tensor in tensors.values())
    bottleneck = next(part for part in answer["parts"] if part["kind"] == "bottleneck")
    assert len(bottleneck["blocks"]) == bert.config.num_layers
    # The rule of a Compacter is shared by all blocks.
    assert sum(bottleneck["blocks"]) == bottleneck["parameters"] - prod(tensors["bottleneck.rule"]["shape"])
    assert (await caller.client.get("/v1/adapters/a/versions/2/manifest")).status_code == 404


async def test_a_download_is_the_upload(caller: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    data = make_artifact(bert)
    digest = (await caller.upload(data)).json()["digest"]
    url = "/v1/adapters/demo/versions/1/artifact"
    answer = await caller.client.get(url)
    assert answer.content == data
    assert answer.headers["etag"] == f'"{digest}"'
    assert (await caller.client.get(url, headers={"if-none-match": f'"{digest}"'})).status_code == 304
    assert (await caller.client.get(url, headers={"if-none-match": '"sha256:other"'})).status_code == 200


async def test_a_damaged_artifact_is_not_downloaded(running, bert, make_artifact, tmp_path):
    assert (await running.upload(make_artifact(bert))).status_code == 201
    (stored,) = (tmp_path / "store" / "blobs" / "sha256").iterdir()
    stored.write_bytes(bytes(stored.stat().st_size))
    answer = await running.client.get("/v1/adapters/demo/versions/1/artifact")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")


async def test_deleting_a_version_and_an_adapter(shelf: Running) -> None:
    delete = shelf.client.delete
    assert (await delete("/v1/adapters/a/versions/2")).status_code == 204
    assert (await delete("/v1/adapters/a/versions/2")).json()["error"]["code"] == "version_not_found"
    assert (await shelf.predict("a", "bad")).json()["adapter"]["version"] == 1
    assert (await delete("/v1/adapters/a")).status_code == 204
    assert (await delete("/v1/adapters/a")).json()["error"]["code"] == "adapter_not_found"


async def test_a_deleted_version_comes_back_as_it_was(shelf: Running) -> None:
    before = (await shelf.client.get("/v1/adapters/a")).json()
    await shelf.client.delete("/v1/adapters/a/versions/2")
    back = await shelf.client.post("/v1/adapters/a/versions/2/undelete")
    assert (back.status_code, back.json()) == (200, before["latest"])
    assert (await shelf.client.get("/v1/adapters/a")).json() == before
    assert (await shelf.predict("a", "bad")).json()["adapter"]["version"] == 2
    assert (await shelf.client.post("/v1/adapters/a/versions/2/undelete")).status_code == 200
    never = await shelf.client.post("/v1/adapters/a/versions/9/undelete")
    assert (never.status_code, never.json()["error"]["code"]) == (404, "version_not_found")


async def test_a_deleted_adapter_comes_back_version_by_version(shelf: Running) -> None:
    """Until then its name is free, and what is uploaded under it gets a new number."""
    await shelf.client.delete("/v1/adapters/a")
    assert (await shelf.client.get("/v1/adapters/a")).status_code == 404
    for number in (1, 2):
        assert (await shelf.client.post(f"/v1/adapters/a/versions/{number}/undelete")).status_code == 200
    assert (await shelf.client.get("/v1/adapters/a")).json()["num_versions"] == 2


async def test_a_deprecated_version_still_answers_when_it_is_named(shelf: Running) -> None:
    """A bare name means another one; the reason is in the lists, and can be taken back."""
    url = "/v1/adapters/a/versions/2/deprecate"
    answer = await shelf.client.post(url, json={"reason": "worse on questions"})
    assert answer.json()["deprecation"] == "worse on questions"
    assert (await shelf.predict("a", "bad")).json()["adapter"]["version"] == 1
    assert (await shelf.predict("a@2", "bad")).headers["x-adapter-version"] == "2"
    listed = (await shelf.client.get("/v1/adapters/a/versions")).json()["versions"]
    assert [version.get("deprecation") for version in listed] == ["worse on questions", None]
    assert "deprecation" not in (await shelf.client.post(url, json={"reason": None})).json()
    assert (await shelf.predict("a", "bad")).json()["adapter"]["version"] == 2


async def test_an_adapter_is_opened_and_closed(shelf: Running) -> None:
    for public in (True, False):
        assert (await shelf.client.patch("/v1/adapters/a", json={"public": public})).json()["public"] is public
    for body in ({}, {"public": "yes"}, {"public": True, "name": "b"}):
        assert (await shelf.client.patch("/v1/adapters/a", json=body)).status_code == 422
    assert (await shelf.client.patch("/v1/adapters/nope", json={"public": True})).status_code == 404


WRONG_ADDRESSES = [
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
]


async def test_wrong_addresses(shelf: Running) -> None:
    for method, path, status in WRONG_ADDRESSES:
        answer = await shelf.client.request(method, path)
        assert answer.status_code == status, path
        assert answer.json()["error"]["message"], path


async def test_a_wrong_method_names_the_right_ones(caller: Running) -> None:
    answer = await caller.client.put("/v1/adapters")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD, POST"
    assert answer.json()["error"]["message"] == "this address accepts GET, POST, not PUT"
