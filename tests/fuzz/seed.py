"""Seeds of the fuzzer: the heads of the corpus's files, which is all that the reader looks at before the weights.

`python tests/fuzz/seed.py VALID.safetensors DIRECTORY` writes them.
"""

import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "corpus"))

import build

_MAX_BYTES = 16 * 1024


def seed(valid: bytes, directory: Path) -> None:
    """Writes the head of each file, as it is and without its length, and each manifest; large ones teach a fuzzer
    nothing but slowness."""
    directory.mkdir(parents=True, exist_ok=True)
    (length,) = struct.unpack("<Q", valid[:8])
    heads = {valid[: 8 + length]: None}
    heads |= {
        case.data[: 8 + length]: None for case in build.refused(valid) if len(case.data) < len(valid) + _MAX_BYTES
    }
    for number, head in enumerate(heads):
        (directory / f"{number:04}").write_bytes(head)
        (directory / f"{number:04}-text").write_bytes(head[8:])
        manifest = _manifest(head)
        if manifest is not None:
            (directory / f"{number:04}-manifest").write_bytes(manifest)


def _manifest(head: bytes) -> bytes | None:
    try:
        return str(build.split(head)[0]["__metadata__"]["manifest"]).encode()
    except (ValueError, KeyError, TypeError, RecursionError, struct.error):
        return None


if __name__ == "__main__":
    seed(Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]))
