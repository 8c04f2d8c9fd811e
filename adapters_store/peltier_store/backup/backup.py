"""A backup: one tar file of everything that a registry and its blob store hold.

`blobs/sha256/…` are the blobs, and `registry.jsonl` has one row of the registry per line. `backup.json` is the last
member, so it is present only in a complete backup. Digests cover all contents: a blob is named by the digest of its
bytes, and `backup.json` has the digest of the rows.
"""

from datetime import datetime
from typing import Literal

from peltier_adapters.errors import AdapterError
from pydantic import BaseModel, ConfigDict

BLOBS, ROWS, SUMMARY = "blobs/", "registry.jsonl", "backup.json"


class BackupError(AdapterError):
    """A backup cannot be written or read."""


class BackupSummary(BaseModel):
    """The contents of a backup. `num_rows` counts by table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["peltier-backup"] = "peltier-backup"
    format_version: Literal[1] = 1
    schema_revision: str
    created_at: datetime
    num_rows: dict[str, int]
    num_blobs: int
    blob_bytes: int
    rows_digest: str
