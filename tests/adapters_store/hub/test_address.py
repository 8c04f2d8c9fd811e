"""Addresses of the hub."""

import pytest
from peltier_adapters.errors import AdapterError
from peltier_adapters.hub.address import HubRepository, parse_repository


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("hf://acme/sst2", HubRepository("acme/sst2")),
        ("hf://acme/sst2@v1.0", HubRepository("acme/sst2", "v1.0")),
        ("hf://acme/sst2@refs/pr/1", HubRepository("acme/sst2", "refs/pr/1")),
    ],
)
def test_an_address_is_read_and_written(text: str, address: HubRepository) -> None:
    """A repository, maybe at a revision; written again it is the same text."""
    assert parse_repository(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "hf://acme",
        "hf://acme/x/y",
        "hf://../x",
        "hf://acme/x@",
        "hf://acme/x@../y",
        "hf://collections/acme/x",
        "acme/x",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(AdapterError, match=r"is not of the form hf://OWNER/NAME or hf"):
        parse_repository(text)
