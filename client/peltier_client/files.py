"""Writing a file so that it is there whole or not at all."""

from pathlib import Path


def write_whole(path: Path, data: bytes) -> Path:
    """Put `data` at `path`; a write that fails leaves what was there."""
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return path
