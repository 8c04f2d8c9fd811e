"""Adapters on the wire: versions, lists, pages."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from peltier_client.protocol.wire import ResponseModel

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


class TaskSummary(ResponseModel):
    """What the adapter answers, from its manifest; `max_length` is in tokens."""

    type: str
    labels: list[str]
    inputs: Literal["single", "pair", "triple"]
    max_length: int


class AdapterVersion(ResponseModel):
    """One immutable version of an adapter; `metrics` are those recorded by its training."""

    tenant: str
    name: str
    version: int
    digest: Digest
    size_bytes: int
    preset: str
    created_at: datetime
    task: TaskSummary
    metrics: dict[str, float] = Field(default_factory=dict)


class Adapter(ResponseModel):
    """An adapter by name, with the newest of its versions."""

    tenant: str
    name: str
    num_versions: int
    latest: AdapterVersion


class AdapterPage(ResponseModel):
    """Some adapters in order of name; `next_cursor` asks for those that follow, null on the last page."""

    adapters: list[Adapter]
    next_cursor: str | None = None


class VersionList(ResponseModel):
    """Every live version of one adapter, newest first."""

    versions: list[AdapterVersion]
