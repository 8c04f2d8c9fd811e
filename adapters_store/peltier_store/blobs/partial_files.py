"""Files that interrupted writes leave in the directory of a blob store."""

import re
from pathlib import Path

# obstore's name of a file that it is writing.
_PARTIAL = re.compile(r"[0-9a-f]{64}#[0-9]+")


def remove_partial_files(directory: Path, before: float) -> int:
    """Removes the partial files that were last written before that Unix time; returns how many."""
    partial = [path for path in directory.iterdir() if _PARTIAL.fullmatch(path.name)]
    return sum(_remove_older(path, before) for path in partial)


def _remove_older(path: Path, before: float) -> bool:
    """Whether this call removed the file; its writer or another process may have removed it first."""
    try:
        if path.stat().st_mtime >= before:
            return False
        path.unlink()
    except FileNotFoundError:
        return False
    return True
