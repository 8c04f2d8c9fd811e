"""The native libraries that this processor could use, and why some of them cannot be used."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from peltier_backbone.native.levels import processor_levels
from peltier_backbone.native.library import Library
from peltier_backbone.native.self_check import check

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class LibraryState:
    """The library of a level, open and checked, or the `reason` why it cannot be used."""

    name: str
    library: Library | None = None
    reason: str = ""


def survey_libraries() -> list[LibraryState]:
    """The libraries of this processor's levels, the fastest first."""
    return [survey_library(level.name) for level in processor_levels()]


def survey_library(level: str) -> LibraryState:
    """The library of a level that this processor can run. It is opened and checked once."""
    return _survey(_FOLDER / f"{level}.so")


@cache
def _survey(path: Path) -> LibraryState:
    if not path.exists():
        return LibraryState(path.stem, reason="it was not built")
    try:
        library = Library(path)
        if not library.runs:
            return LibraryState(path.stem, reason="the operating system does not permit its instructions")
        check(library)
    except (OSError, AttributeError, RuntimeError) as error:
        return LibraryState(path.stem, reason=str(error))
    return LibraryState(path.stem, library)
