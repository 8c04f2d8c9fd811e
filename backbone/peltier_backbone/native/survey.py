"""Which native libraries this machine could use, and why it does not use some of them."""

from dataclasses import dataclass
from pathlib import Path

from peltier_backbone.native.library import Library, library_paths
from peltier_backbone.native.self_check import check


@dataclass(frozen=True)
class LibraryState:
    """A library for this processor; `reason` says why it cannot be used, None if it can."""

    name: str
    reason: str | None


def survey_libraries() -> list[LibraryState]:
    """The fastest first; `load_library` takes the first that can be used."""
    return [LibraryState(path.stem, _defect(path)) for path in library_paths()]


def _defect(path: Path) -> str | None:
    if not path.exists():
        return "it was not built"
    try:
        library = Library(path)
        if not library.runs:
            return "the processor lacks some of its instructions, or the system does not permit them"
        check(library)
    except (OSError, AttributeError, RuntimeError) as error:
        return str(error)
    return None
