"""The rows of a registry for a backup, in a temporary file, because an audit log may be long."""

import hashlib
import json
from collections import Counter
from typing import IO

from peltier_store.registry.dump import Line


class RowFile:
    """Rows as lines of JSON, their number by table, and the blobs that they need."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.num_rows: Counter[str] = Counter()
        self.digests: set[str] = set()
        self._sha256 = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The digest of all lines."""
        return f"sha256:{self._sha256.hexdigest()}"

    def take(self, line: Line) -> None:
        """Adds a row, and notes the blob that it needs."""
        text = json.dumps({"table": line.table, "row": line.row}, ensure_ascii=False).encode() + b"\n"
        self.file.write(text)
        self._sha256.update(text)
        self.num_rows[line.table] += 1
        if line.table == "versions":
            self.digests.add(line.row["digest"])
