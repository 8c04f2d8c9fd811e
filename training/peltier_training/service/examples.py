"""The files of a training's examples, as bytes of a tenant and as files for the readers. Imports no torch."""

from pathlib import Path

from peltier_client.bulk.data_file import data_kind

from peltier_training.data.formats import CONLL_KINDS
from peltier_training.errors import TrainingError, shown

MAX_FILE_BYTES = 256 * 2**20
MAX_LINE_BYTES = 2**20
_KINDS = (".jsonl", ".csv", ".tsv", ".json", *CONLL_KINDS)
_START_BYTES = 4_096
_MARKS = b"\xef\xbb\xbf \t\r\n"


def file_kind(name: str, start: bytes) -> str:
    """The suffix for the readers, by the name of a file, else by its first bytes: JSONL begins with a brace.

    Raises a `TrainingError` for a compressed file, whose size is unknown before it is read.
    """
    if name.lower().endswith(".gz") or start.startswith(b"\x1f\x8b"):
        raise TrainingError(f"the file {shown(name)} is compressed; send it as it is, .jsonl or .csv")
    kind = data_kind(Path(name.replace("/", "_") or "_"))
    if kind in _KINDS:
        return kind
    return ".jsonl" if start.lstrip(_MARKS).startswith((b"{", b"[")) else ".csv"


def check_size(name: str, num_bytes: int) -> None:
    """Raise a `TrainingError` for a file of more than `MAX_FILE_BYTES`."""
    if num_bytes > MAX_FILE_BYTES:
        raise TrainingError(
            f"the file {shown(name)} has {num_bytes:,} bytes; a training reads at most {MAX_FILE_BYTES:,}"
        )


def write_file(directory: Path, part: str, name: str, data: bytes, size_bytes: int) -> Path:
    """Write the bytes as `part` with the suffix of their kind; returns the path relative to `directory`.

    Raises a `TrainingError` for too many bytes, or others than the `size_bytes` that the file was said to have."""
    check_size(name, len(data))
    if len(data) != size_bytes:
        raise TrainingError(f"the file {shown(name)} has {len(data):,} bytes; it was stored with {size_bytes:,}")
    path = Path(f"{part}{file_kind(name, data[:_START_BYTES])}")
    (directory / path).write_bytes(data)
    return path


def check_lines(path: Path) -> None:
    """Raise a `TrainingError` for a line of more than `MAX_LINE_BYTES`, which no reader has to hold then."""
    if path.suffix == ".json":  # SQuAD's form is one line
        return
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise TrainingError(f"{path}:{number} has more than {MAX_LINE_BYTES:,} bytes; shorten its texts")
