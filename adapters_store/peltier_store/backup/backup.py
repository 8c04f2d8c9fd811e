"""A backup: one tar of everything that a registry and its blob store hold.

`blobs/sha256/…` are the blobs, `registry.jsonl` has one row of the registry a line, and `backup.json`, the last member,
says that the backup is whole. A blob is named by the digest of its bytes and `backup.json` has that of the rows, so
that nothing can change unnoticed.
"""

from datetime import datetime
from typing import Literal

from peltier_adapters.errors import AdapterError
from pydantic import BaseModel, ConfigDict

BLOBS, ROWS, SUMMARY = "blobs/", "registry.jsonl", "backup.json"


class BackupError(AdapterError):
    """A backup cannot be written, or is not one that can be read."""


class Summary(BaseModel):
    """What a backup holds. `num_rows` is by table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["peltier-backup"] = "peltier-backup"
    format_version: Literal[1] = 1
    schema_revision: str
    created_at: datetime
    num_rows: dict[str, int]
    num_blobs: int
    blob_bytes: int
    rows_digest: str
