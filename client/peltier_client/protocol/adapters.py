"""Adapters on the wire: versions, lists, pages, and pins."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StringConstraints

from peltier_client.protocol.aliases import Split
from peltier_client.protocol.predict import is_none
from peltier_client.protocol.wire import RequestModel, ResponseModel

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


class TaskSummary(ResponseModel):
    """The task of an adapter, from its manifest; `max_length` is in tokens."""

    type: str
    labels: list[str]
    inputs: Literal["single", "pair", "triple"]
    max_length: int


class TaskOutline(ResponseModel):
    """The task of an adapter in a list, without the names of its labels."""

    type: str
    num_labels: int
    inputs: Literal["single", "pair", "triple"]
    max_length: int


class _Version(ResponseModel):
    tenant: str
    name: str
    version: int
    digest: Digest
    size_bytes: int
    preset: str
    created_at: datetime
    created_by: str = ""
    deprecation: Annotated[str | None, Field(exclude_if=is_none)] = None


class VersionSummary(_Version):
    """A version in a list: about half a kilobyte, however many labels it has. `AdapterVersion` has everything."""

    task: TaskOutline


class AdapterVersion(_Version):
    """One immutable version of an adapter; `metrics` are those of its training.

    `created_by` uploaded it. `deprecation` is the reason of its deprecation, absent for most.
    """

    task: TaskSummary
    metrics: dict[str, float] = Field(default_factory=dict)


class PartCounts(ResponseModel):
    """A part of an adapter and its elements: all of them, and those in each block of the backbone, in order.

    The encoder's and the decoder's blocks of the same place are counted together. What all blocks share is in none.
    """

    kind: str
    parameters: int
    blocks: list[int] = Field(default_factory=list)


class VersionManifest(ResponseModel):
    """The manifest of a version as in its artifact (`GET /v1/schema/artifact`), and the sizes of its parts.

    `parts` is empty if the version was trained on another backbone than the server's.
    """

    manifest: dict[str, Any]
    parts: list[PartCounts] = Field(default_factory=list)


class UploadedVersion(AdapterVersion):
    """The version with an upload's bytes; `created` is false if the version existed before.

    `live` is the share of requests that each version gets under the bare name; `aliases` are the adapter's.
    """

    created: bool = True
    live: Split = Field(default_factory=dict)
    aliases: dict[str, Split] = Field(default_factory=dict)


class Adapter(ResponseModel):
    """An adapter with its newest version and its aliases.

    Other tenants can use a `public` adapter as `tenant:name`. `live` is the share of requests that each version gets
    under the bare name.
    """

    tenant: str
    name: str
    public: bool = False
    num_versions: int
    latest: AdapterVersion
    live: Split = Field(default_factory=dict)
    aliases: dict[str, Split] = Field(default_factory=dict)


class AdapterSummary(ResponseModel):
    """An adapter in a list, with the names of its first eight aliases. `Adapter` has all aliases with their splits, and
    labels and metrics."""

    tenant: str
    name: str
    public: bool = False
    num_versions: int
    latest: VersionSummary
    live: Split = Field(default_factory=dict)
    aliases: list[str] = Field(default_factory=list)


class AdapterChange(RequestModel):
    """A change of an adapter."""

    public: StrictBool


class DeprecationRequest(RequestModel):
    """The reason to deprecate a version; null removes the deprecation."""

    reason: Annotated[str, Field(min_length=1, max_length=1000)] | None


class AdapterPage(ResponseModel):
    """A page of adapters in order of name; `next_cursor` is that of the next page, null on the last."""

    adapters: list[AdapterSummary]
    next_cursor: str | None = None


class VersionList(ResponseModel):
    """A page of an adapter's live versions, newest first; `next_cursor` is that of the next page, null on the last."""

    versions: list[VersionSummary]
    next_cursor: str | None = None


class PinRequest(RequestModel):
    """A pin has no options: every replica keeps the adapter on its device."""


class AdapterPin(ResponseModel):
    """A pin: its time, and who made it."""

    pinned_at: datetime
    pinned_by: str
