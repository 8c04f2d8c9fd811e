"""What names and texts in the registry may be."""

import re

from peltier_adapters.artifact.manifest import NAME_PATTERN

from peltier_store.registry.errors import InvalidRecord


def check_name(kind: str, name: str) -> None:
    """Raises InvalidRecord unless `name` may name a tenant or an alias, as `kind` says."""
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise InvalidRecord(
            f"the {kind} {name!r} is not a letter or digit and up to 62 more, '.', '_' or '-', in lower case"
        )


def check_text(kind: str, text: str) -> None:
    """Raises InvalidRecord for text that one of the databases cannot keep."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidRecord(f"the {kind} {text!r} holds a zero byte or half of a character")
