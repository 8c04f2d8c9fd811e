"""What a reference means."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from peltier_adapters.manifest import Manifest, read_header
from peltier_adapters.registry import Version
from peltier_backbone.load import Backbone
from peltier_client.errors import AdapterNotFound, VersionNotFound
from peltier_client.protocol import TaskReference
from peltier_server.catalog import Catalog, Entry


@pytest.fixture(scope="module")
def manifest(bert: Backbone, make_artifact: Callable[..., bytes]) -> Manifest:
    return read_header(make_artifact(bert, "bitfit"))[0]


def make_version(manifest: Manifest, name: str, number: int, digest: str = "") -> Version:
    text = json.dumps(manifest.model_dump(mode="json"))
    digest = f"sha256:{digest or f'{name}{number}'.encode().hex():0>64}"
    return Version("default", name, number, digest, 10, "bitfit", text, datetime.now(UTC))


@pytest.fixture
def catalog(manifest: Manifest) -> Catalog:
    """`a` in versions 1, 3 and 10, `b` in version 2."""
    numbers = [("a", 1), ("a", 10), ("a", 3), ("b", 2)]
    return Catalog.of(make_version(manifest, name, number) for name, number in numbers)


def resolved(catalog: Catalog, text: str) -> int:
    return catalog.resolve(TaskReference.parse(text)).version.number


def test_a_bare_name_is_the_newest_version(catalog: Catalog) -> None:
    """Newest by number, not by text."""
    assert resolved(catalog, "a") == 10
    assert resolved(catalog, "a@3") == 3
    assert resolved(catalog, "default:b") == 2


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("c", AdapterNotFound, "adapter 'c' does not exist"),
        ("a@2", VersionNotFound, "adapter 'a' has no version 2; its newest is 10"),
        ("a@production", VersionNotFound, "adapter 'a' has no alias 'production'"),
        ("other:a", AdapterNotFound, "adapter 'other:a' does not exist"),
    ],
)
def test_what_is_not_there_is_named(catalog: Catalog, text: str, error: type[Exception], message: str) -> None:
    """An unknown name, version, alias or tenant."""
    with pytest.raises(error) as caught:
        resolved(catalog, text)
    assert str(caught.value) == message


def test_the_adapter_goes_with_its_last_version(catalog: Catalog) -> None:
    """Until then a bare name falls back to the newest that is left."""
    catalog.remove("a", 10)
    assert resolved(catalog, "a") == 3
    for number in (1, 3):
        catalog.remove("a", number)
    with pytest.raises(AdapterNotFound):
        resolved(catalog, "a")
    assert len(catalog) == 1


def test_bytes_are_held_while_any_version_has_them(catalog: Catalog, manifest: Manifest) -> None:
    """Two names may share one blob."""
    shared = [Entry.of(make_version(manifest, name, 1, digest="f")) for name in ("x", "y")]
    for entry in shared:
        catalog.add(entry)
    catalog.remove("x", 1)
    assert catalog.holds(shared[0].digest)
    catalog.remove("y", 1)
    assert not catalog.holds(shared[0].digest)


def test_an_unreadable_version_does_not_hide_the_others(manifest: Manifest, caplog: pytest.LogCaptureFixture) -> None:
    """A manifest of another release costs one version, not the server."""
    good, bad = make_version(manifest, "a", 1), Version("default", "b", 1, "sha256:0", 1, "x", "{}", datetime.now(UTC))
    catalog = Catalog.of([bad, good])
    assert catalog.names(after="", containing="", limit=10) == ["a"]
    assert "b@1 is not served" in caplog.text
