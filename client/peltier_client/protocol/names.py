"""Names of tasks, tenants and aliases, and references to a version of a task."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from peltier_client.errors import InvalidInput

NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,62}"
Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]

# The task of the server's backbone without an adapter. No adapter can have this name.
BACKBONE_TASK = "_backbone"

# Nine digits stay below every database's largest integer.
MAX_VERSION = 999_999_999

_NAME = re.compile(NAME_PATTERN)
_VERSION = re.compile(r"[1-9][0-9]{0,8}")
_SHOWN_CHARS = 80


def check_name(value: str, what: str = "name") -> str:
    """`value` if it is a name, else `InvalidInput`; the message calls it `what`."""
    if _NAME.fullmatch(value):
        return value
    raise InvalidInput(
        f"{what} {_shown(value)} is not allowed: a name has 1 to 63 characters of a-z, 0-9, '.', '_' and '-' "
        "and begins with a letter or digit"
    )


def check_alias(value: str) -> str:
    """`value` if it can be an alias, else `InvalidInput`. An alias is a name that is not a number."""
    if value.isdecimal():
        raise InvalidInput(f"alias {_shown(value)} is not allowed: a number means a version")
    return check_name(value, "alias")


@dataclass(frozen=True, slots=True)
class TaskReference:
    """A reference to a task: `name`, `name@3` or `name@production`, each optionally behind `tenant:`; or `_backbone`,
    the server's backbone without an adapter.

    At most one of `version` and `alias` is set; with neither the server chooses. `str()` returns the text.
    """

    name: str
    version: int | None = None
    alias: str | None = None
    tenant: str | None = None

    @staticmethod
    @lru_cache(maxsize=1024)
    def parse(text: str) -> "TaskReference":
        """Parse `text`, or raise `InvalidInput` with the rule that it breaks."""
        tenant, colon, rest = text.rpartition(":")
        name, at, selector = rest.partition("@")
        if name == BACKBONE_TASK:
            return _backbone_reference(text)
        check_name(name, "task")
        if colon:
            check_name(tenant, "tenant")
        version, alias = _read_selector(selector) if at else (None, None)
        return TaskReference(name, version, alias, tenant if colon else None)

    def __str__(self) -> str:
        tenant = f"{self.tenant}:" if self.tenant is not None else ""
        selector = self.version if self.version is not None else self.alias
        return f"{tenant}{self.name}" + (f"@{selector}" if selector is not None else "")


def _backbone_reference(text: str) -> TaskReference:
    if text != BACKBONE_TASK:
        raise InvalidInput(f"task {_shown(text)} is not allowed: {BACKBONE_TASK} has no tenant, version or alias")
    return TaskReference(text)


def group_prefix(task: str) -> str | None:
    """The prefix of a group `prefix*`; None for a task reference."""
    return task.removesuffix("*") if task.endswith("*") else None


def _read_selector(selector: str) -> tuple[int | None, str | None]:
    if _VERSION.fullmatch(selector):
        return int(selector), None
    if selector.isdecimal():
        raise InvalidInput(f"version {_shown(selector)} is not allowed: versions are 1, 2, 3, … without leading zeros")
    return None, check_name(selector, "alias")


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN_CHARS else value[:_SHOWN_CHARS] + "…")
