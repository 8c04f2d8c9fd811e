"""Files of examples over a socket."""

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress

import httpx2
import pytest

from tests.server.conftest import ADMIN, Listen, Listening
from tests.server.extensions.conftest import House

JSONL = b'{"text": "a gem", "label": "good"}\n{"text": "a bore", "label": "bad"}\n'
CSV = b'text,label\n"a gem,\nindeed",good\na bore,bad\n'


@pytest.fixture(scope="module")
def world(listen: Listen) -> Iterator[Listening]:
    """A server with small bounds that all tests share."""
    with listen(admin_key=ADMIN, max_file_bytes=4 * 1024 * 1024, max_file_rows=50) as started:
        yield started


async def test_an_uploaded_file_can_be_read_back(house: House) -> None:
    """Bit by bit; its rows are counted, and it has OpenAI's shape."""
    for name, data in (("a.jsonl", JSONL), ("b.csv", CSV)):
        answer = await house.upload(name, data)
        assert answer.status_code == 201, answer.text
        file = answer.json()
        assert (file["object"], file["bytes"], file["filename"]) == ("file", len(data), name)
        assert (file["purpose"], file["status"], file["rows"]) == ("fine-tune", "processed", 2)
        assert isinstance(file["created_at"], int)
        assert (await house.a.get(f"/v1/files/{file['id']}")).json() == file
        assert (await house.a.get(f"/v1/files/{file['id']}/content")).content == data


async def test_files_are_listed_in_pages(house: House) -> None:
    ids = [(await house.upload(f"{number}.jsonl", JSONL)).json()["id"] for number in range(3)]
    first = (await house.a.get("/v1/files", params={"limit": 2, "purpose": "fine-tune"})).json()
    assert [one["id"] for one in first["data"]] == ids[:0:-1]
    assert (first["has_more"], first["last_id"], first["object"]) == (True, ids[1], "list")
    second = (await house.a.get("/v1/files", params={"limit": 2, "after": first["last_id"]})).json()
    assert ([one["id"] for one in second["data"]], second["has_more"]) == (ids[:1], False)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl", b"\xff\xfe{}", "line 1 is not UTF-8 text: invalid start byte 0xff; convert the file"),
        ("a.jsonl", b'{"a": NaN}', "line 1 has the number NaN, which is not finite"),
        ("a.jsonl", b'{"a": 1}\n{"a": 1e999}', "line 2 has the number 1e999, which is not finite"),
        ("a.jsonl", b"[" * 60_000, "line 1 nests too many brackets"),
        ("a.jsonl", b"[" * 100_000, "line 1 has more than 65536 strings, commas and brackets"),
        ("a.jsonl", b'{"a": "' + b"a" * (1024 * 1024) + b'"}', "line 1 has more than 1048576 bytes"),
        ("a.jsonl", b'{"a": 1}\n' * 51, "the file has more than 50 rows, which is the maximum"),
        ("a.jsonl", b'{"a": "\\ud800"}', "line 1 has a lone surrogate, which is no text"),
        ("a.jsonl", b"\x1f\x8b\x08", "the file is compressed by gzip; send it as JSONL or CSV text"),
        ("a.csv", b"text,label\na\n", "line 2 has 1 cells; the first line names 2 columns"),
        ("a.csv", b'text,label\n"' + b"a" * 200_000, "line 2 is not CSV: field larger than field limit"),
        ("a.txt", JSONL, "the file's name is 'a.txt'; it must end in .jsonl, .csv or .tsv"),
    ],
)
async def test_a_hostile_file_is_refused_in_one_sentence(house: House, name: str, data: bytes, message: str) -> None:
    answer = await house.upload(name, data)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_input"), answer.text
    assert answer.json()["error"]["message"].startswith(message)
    assert (await house.a.get("/v1/files")).json()["data"] == []


async def test_a_file_beyond_the_bound_is_refused(house: House) -> None:
    """413, by the bytes that arrive."""
    answer = await house.upload("a.jsonl", b'{"a": 1}' + b" " * (4 * 1024 * 1024))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_what_a_body_says_of_its_size_is_not_believed(world: Listening) -> None:
    """A part that says it has 1 KB, in a chunked body without end, is cut off at the bound."""
    address = httpx2.URL(world.url)
    head = (
        "POST /v1/files HTTP/1.1\r\nhost: x\r\n"
        f"authorization: Bearer {ADMIN}\r\ncontent-type: multipart/form-data; boundary=b\r\n"
        "transfer-encoding: chunked\r\n\r\n"
    )
    part = (
        b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.jsonl"\r\ncontent-length: 1024\r\n\r\n'
        b'{"text": "'
    )
    heard = b""
    with socket.create_connection((address.host, address.port or 0), timeout=60) as connection:
        connection.sendall(head.encode() + b"%x\r\n%s\r\n" % (len(part), part))
        with suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"10000\r\n" + b"a" * 65_536 + b"\r\n")
        with suppress(ConnectionError):
            while piece := connection.recv(65_536):
                heard += piece
    assert heard.startswith(b"HTTP/1.1 413"), heard[:200]
    assert b"the request body is larger than this server accepts" in heard


async def test_stored_files_count_for_the_quota_of_bytes(house: House) -> None:
    """507 before and after nothing is kept; a deleted file makes room."""
    await house.limit(max_stored_bytes=len(JSONL))
    file_id = (await house.upload("a.jsonl", JSONL)).json()["id"]
    answer = await house.upload("b.jsonl", JSONL)
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "storage_full")
    await house.a.delete(f"/v1/files/{file_id}")
    assert (await house.upload("b.jsonl", JSONL)).status_code == 201


async def test_other_purposes_and_parts_are_refused(house: House) -> None:
    for form, message in (
        ({"purpose": "vision"}, "purpose is 'vision': input should be 'fine-tune' or 'batch'"),
        ({}, "purpose is missing"),
        ({"purpose": "fine-tune", "more": "1"}, "more is unknown here"),
    ):
        answer = await house.a.post("/v1/files", files={"file": ("a.jsonl", JSONL)}, data=form)
        assert (answer.status_code, answer.json()["error"]["message"]) == (422, message)


async def test_files_of_examples_need_the_scope_train(house: House) -> None:
    """For a key with the other scopes there are only files of batches."""
    file_id = (await house.upload("a.jsonl", JSONL)).json()["id"]
    sent = {"files": {"file": ("a.jsonl", JSONL)}}
    answers = [
        await house.reader.get("/v1/files", params={"purpose": "fine-tune"}),
        await house.reader.post("/v1/files", **sent, data={"purpose": "fine-tune"}),
    ]
    for answer in answers:
        assert answer.status_code == 403
        assert "this needs the scope 'train'" in answer.json()["error"]["message"]
    assert (await house.reader.get("/v1/files")).json()["data"] == []
    for path in (f"/v1/files/{file_id}", f"/v1/files/{file_id}/content"):
        assert (await house.reader.get(path)).status_code == 404
    batch = await house.reader.post("/v1/files", **sent, data={"purpose": "batch"})
    assert [one["id"] for one in (await house.reader.get("/v1/files")).json()["data"]] == [batch.json()["id"]]
    training = {"task": "demo", "file_id": batch.json()["id"]}
    assert (await house.a.post("/v1/trainings", json=training)).status_code == 404


async def test_a_repeated_batch_is_created_once(house: House) -> None:
    """By its key; the batch that a busy server has begun is the one that is answered."""
    sent = {"files": {"file": ("a.jsonl", JSONL)}, "data": {"purpose": "batch"}}
    file_id = (await house.a.post("/v1/files", **sent)).json()["id"]
    body = {"input_file_id": file_id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    answers = [await house.a.post("/v1/batches", json=body, headers={"idempotency-key": "one"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert len((await house.a.get("/v1/batches")).json()["data"]) == 1
    refused = await house.a.post(
        "/v1/trainings", json={"task": "demo", "file_id": "f"}, headers={"idempotency-key": "one"}
    )
    assert refused.status_code == 422


# Where the id of the file belongs there are braces.
CALLS = (
    ("GET", "/v1/files/{}", None),
    ("GET", "/v1/files/{}/content", None),
    ("GET", "/v1/files?after={}", None),
    ("DELETE", "/v1/files/{}", None),
    ("POST", "/v1/batches", {"input_file_id": "{}", "endpoint": "/v1/embeddings", "completion_window": "24h"}),
    ("POST", "/v1/trainings", {"task": "demo", "file_id": "{}"}),
    ("POST", "/v1/fine_tuning/jobs", {"model": "bitfit", "training_file": "{}", "suffix": "No!"}),
)


async def test_a_key_learns_nothing_of_files_beyond_its_tenant_and_its_scopes(house):
    """Every route answers as for a file that does not exist."""
    missing = "file-" + "0" * 24
    file_id = (await house.upload("a.jsonl", JSONL)).json()["id"]
    assert (await house.b.get("/v1/files")).json()["data"] == []
    sent = {"files": {"file": ("a.jsonl", JSONL)}, "data": {"purpose": "batch"}}
    batch = (await house.reader.post("/v1/files", **sent)).json()["id"]
    trainer_key = house.listening.add_key(house.tenant, "train").key
    async with house.listening.client(trainer_key) as trainer:
        for client, hidden in ((house.b, file_id), (house.reader, file_id), (trainer, batch)):
            for method, path, body in CALLS:
                texts = []
                for one in (hidden, missing):
                    named = None if body is None else {name: value.format(one) for name, value in body.items()}
                    answer = await client.request(method, path.format(one), json=named)
                    assert answer.status_code in (403, 404), (method, path)
                    texts.append((answer.status_code, answer.text.replace(one, "")))
                assert texts[0] == texts[1]
    assert (await house.a.get(f"/v1/files/{file_id}")).status_code == 200


def test_a_file_name_is_printable(world: Listening) -> None:
    """At most 255 characters, none of which a terminal would obey."""
    headers = {"authorization": f"Bearer {ADMIN}"}
    send: Callable[..., httpx2.Response] = httpx2.post
    answer = send(
        f"{world.url}/v1/files",
        files={"file": ("a" * 250 + ".jsonl", JSONL)},
        data={"purpose": "fine-tune"},
        headers=headers,
        timeout=60,
    )
    assert answer.status_code == 422
    assert answer.json()["error"]["message"] == "the file's name must have 1 to 255 printable characters"
