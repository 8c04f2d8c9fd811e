"""One thing that `peltier doctor` found out."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel

Level = Literal["ok", "note", "slow", "broken"]


class Finding(BaseModel):
    """What is so, in one sentence, and what to do about it.

    `note`: worth knowing. `slow`: it works, and could be faster. `broken`: something does not work.
    """

    subject: str
    level: Level
    text: str
    next_step: str | None = None


# Takes the flags of `peltier doctor` that were given, by the names of the server's settings.
Check = Callable[[Mapping[str, Any]], Iterator[Finding]]
