"""Addresses of the hub."""

import pytest
from peltier_adapters.errors import AdapterError
from peltier_adapters.hub.address import HubCollection, HubRepository, parse_address, parse_repository


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("hf://acme/sst2", HubRepository("acme/sst2")),
        ("hf://acme/sst2@v1.0", HubRepository("acme/sst2", "v1.0")),
        ("hf://acme/sst2@refs/pr/1", HubRepository("acme/sst2", "refs/pr/1")),
        ("hf://collections/acme/tasks-65ab", HubCollection("acme/tasks-65ab")),
    ],
)
def test_an_address_is_read_and_written(text: str, address: HubRepository | HubCollection) -> None:
    """A repository, maybe at a revision, or a collection; written again it is the same text."""
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["hf://acme", "hf://acme/x/y", "hf://../x", "hf://acme/x@", "hf://acme/x@../y", "hf://collections/x", "acme/x"],
)
def test_other_texts_are_refused(text: str) -> None:
    """The message has the text and the forms that there are."""
    with pytest.raises(AdapterError, match=r"is not of the form hf://OWNER/NAME, "):
        parse_address(text)


def test_a_collection_is_no_repository() -> None:
    """Where one repository is wanted."""
    with pytest.raises(AdapterError, match="is a collection"):
        parse_repository("hf://collections/acme/tasks")
