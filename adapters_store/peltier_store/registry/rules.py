"""Rules for names and texts in the registry."""

import re

from peltier_adapters.artifact.manifest import NAME_PATTERN

from peltier_store.registry.errors import InvalidRecord


def check_name(kind: str, name: str) -> None:
    """Raises InvalidRecord unless `name` is a valid name of a tenant or an alias; `kind` says which."""
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise InvalidRecord(
            f"the {kind} {name!r} is not a letter or digit and up to 62 more, '.', '_' or '-', in lower case"
        )


def check_text(kind: str, text: str) -> None:
    """Raises InvalidRecord for text that one of the databases cannot store."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidRecord(f"the {kind} {text!r} contains a zero byte or a lone surrogate")
