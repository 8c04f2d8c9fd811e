"""Addresses of adapters on the Hugging Face hub."""

import re
from dataclasses import dataclass

from peltier_adapters.errors import AdapterError

SCHEME = "hf://"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_REPOSITORY = re.compile(rf"({_NAME}/{_NAME})(?:@([A-Za-z0-9][A-Za-z0-9._/-]{{0,127}}))?")
_COLLECTION = re.compile(rf"collections/({_NAME}/{_NAME})")


@dataclass(frozen=True)
class HubRepository:
    """A model repository, `owner/name`, at a branch, a tag or a commit; None is the default branch."""

    name: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{SCHEME}{self.name}" + (f"@{self.revision}" if self.revision else "")


@dataclass(frozen=True)
class HubCollection:
    """A collection of repositories, by its slug `owner/title-id`."""

    slug: str

    def __str__(self) -> str:
        return f"{SCHEME}collections/{self.slug}"


def is_hub(source: object) -> bool:
    """Whether a source is an address of the hub; the rest of it need not be valid."""
    return str(source).startswith(SCHEME)


def parse_address(text: str) -> HubRepository | HubCollection:
    """Reads hf://OWNER/NAME, hf://OWNER/NAME@REVISION or hf://collections/OWNER/SLUG; raises AdapterError."""
    rest = text.removeprefix(SCHEME)
    if found := _COLLECTION.fullmatch(rest):
        return HubCollection(found[1])
    if (found := _REPOSITORY.fullmatch(rest)) and is_hub(text) and not rest.startswith("collections/"):
        return HubRepository(found[1], found[2])
    raise AdapterError(
        f"the source {text!r} is not of the form hf://OWNER/NAME, hf://OWNER/NAME@REVISION or "
        "hf://collections/OWNER/SLUG"
    )


def parse_repository(text: str) -> HubRepository:
    """The same for a single repository."""
    found = parse_address(text)
    if isinstance(found, HubCollection):
        raise AdapterError(f"the address {text!r} is a collection; a repository is hf://OWNER/NAME@REVISION")
    return found
