"""Requests about adapters and their versions."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from peltier_client import Client
from peltier_client.errors import InvalidInput, Unavailable
from peltier_client.exchange.request import Request
from peltier_client.resources import adapters


@pytest.mark.parametrize(
    ("request_", "sent"),
    [
        (adapters.delete("a"), ("DELETE", "/v1/adapters/a", None)),
        (adapters.delete("a@3"), ("DELETE", "/v1/adapters/a/versions/3", None)),
        (adapters.undelete_version("a@3"), ("POST", "/v1/adapters/a/versions/3/undelete", None)),
        (
            adapters.deprecate_version("a@3", "old"),
            ("POST", "/v1/adapters/a/versions/3/deprecate", b'{"reason":"old"}'),
        ),
        (adapters.deprecate_version("a@3", None), ("POST", "/v1/adapters/a/versions/3/deprecate", b'{"reason":null}')),
        (adapters.change_adapter("a", True), ("PATCH", "/v1/adapters/a", b'{"public":true}')),
    ],
)
def test_what_is_sent(request_: Request[Any], sent: tuple[str, str, bytes | None]) -> None:
    """Method, address and body of the contract."""
    assert (request_.method, request_.path, request_.json) == sent


@pytest.mark.parametrize(
    "build",
    [
        lambda: adapters.undelete_version("a"),
        lambda: adapters.undelete_version("other:a@3"),
        lambda: adapters.deprecate_version("a@live", "old"),
        lambda: adapters.deprecate_version("a@3", ""),
        lambda: adapters.delete("a@live"),
        lambda: adapters.delete("other:a"),
        lambda: adapters.delete("../x"),
        lambda: adapters.delete("a@0"),
    ],
)
def test_refused_before_sending(build: Callable[[], object]) -> None:
    """A mistake is one sentence, and nothing leaves its place in the address."""
    with pytest.raises(InvalidInput):
        build()


@pytest.mark.parametrize("name", ["", "../x", "a b", "sst2@1", "A"])
def test_names_are_checked_before_they_are_addresses(name: str) -> None:
    """No name can leave its place in the path."""
    for build in (adapters.get_adapter, adapters.list_versions):
        with pytest.raises(InvalidInput):
            build(name)
    with pytest.raises(InvalidInput):
        adapters.upload(b"", name)


def test_a_missing_file_is_the_callers_own_error() -> None:
    """Reading the artifact fails as reading any file does."""
    with pytest.raises(FileNotFoundError):
        adapters.upload("does-not-exist.safetensors", None)


def test_a_manifest_is_of_one_version() -> None:
    """Its golden examples are as in the artifact; a part without blocks has none."""
    request = adapters.get_manifest("sst2", 3)
    assert request.path == "/v1/adapters/sst2/versions/3/manifest"
    body = {"manifest": {"golden": [{"input": "good"}]}, "parts": [{"kind": "head", "parameters": 4}]}
    answer = request.read(httpx2.Response(200, json=body))
    assert answer.manifest["golden"] == [{"input": "good"}]
    assert [(part.parameters, part.blocks) for part in answer.parts] == [(4, [])]


@pytest.mark.parametrize(
    ("request_", "sent"),
    [
        (adapters.set_alias("a", "live", 3), ("PUT", "/v1/adapters/a/aliases/live", b'{"version":3}')),
        (
            adapters.set_alias("a", "live", {3: 0.9, 4: 0.1}),
            ("PUT", "/v1/adapters/a/aliases/live", b'{"versions":{"3":0.9,"4":0.1}}'),
        ),
        (adapters.alias_history("a", "live"), ("GET", "/v1/adapters/a/aliases/live/history", None)),
        (adapters.rollback_alias("a", "live"), ("POST", "/v1/adapters/a/aliases/live/rollback", None)),
        (adapters.delete_alias("a", "live"), ("DELETE", "/v1/adapters/a/aliases/live", None)),
    ],
)
def test_what_is_sent_about_aliases(request_: Request[Any], sent: tuple[str, str, bytes | None]) -> None:
    """Method, address and body of the contract."""
    assert (request_.method, request_.path, request_.json) == sent


@pytest.mark.parametrize(
    "build",
    [
        lambda: adapters.set_alias("a", "12", 3),
        lambda: adapters.set_alias("a", "live", True),
        lambda: adapters.set_alias("a", "live", 0),
        lambda: adapters.set_alias("a", "live", {"x": 1.0}),
        lambda: adapters.set_alias("a/b", "live", 3),
        lambda: adapters.rollback_alias("a", "../x"),
    ],
)
def test_aliases_refused_before_sending(build: Callable[[], object]) -> None:
    """A mistake is one sentence, and nothing leaves its place in the address."""
    with pytest.raises(InvalidInput):
        build()


def test_a_rollback_is_sent_once(refuse: Callable[..., Any], server: Any) -> None:
    """A second one would go one more step back, and the first may have been done."""
    server.planned.append(refuse(503, "unavailable"))
    with Client(server.url) as client, pytest.raises(Unavailable):
        client.rollback_alias("sst2", "live")
    assert len(server.received) == 1
