"""Addresses of adapters on the Hugging Face hub."""

import re
from dataclasses import dataclass

from peltier_adapters.errors import AdapterError

SCHEME = "hf://"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_REPOSITORY = re.compile(rf"{SCHEME}({_NAME}/{_NAME})(?:@([A-Za-z0-9][A-Za-z0-9._/-]{{0,127}}))?")


@dataclass(frozen=True)
class HubRepository:
    """A model repository, `owner/name`, at a branch, a tag or a commit; None is the default branch."""

    name: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{SCHEME}{self.name}" + (f"@{self.revision}" if self.revision else "")


def is_hub(source: object) -> bool:
    """Whether a source is an address of the hub; the rest of it need not be valid."""
    return str(source).startswith(SCHEME)


def parse_repository(text: str) -> HubRepository:
    """Reads hf://OWNER/NAME or hf://OWNER/NAME@REVISION; raises AdapterError."""
    found = _REPOSITORY.fullmatch(text)
    if found is None:
        raise AdapterError(f"the source {text!r} is not of the form hf://OWNER/NAME or hf://OWNER/NAME@REVISION")
    return HubRepository(found[1], found[2])
