"""Adapters on the wire: versions, lists, pages."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StringConstraints

from peltier_client.protocol.aliases import Split
from peltier_client.protocol.wire import RequestModel, ResponseModel

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


def _is_none(value: object) -> bool:
    return value is None


class TaskSummary(ResponseModel):
    """What the adapter answers, from its manifest; `max_length` is in tokens."""

    type: str
    labels: list[str]
    inputs: Literal["single", "pair", "triple"]
    max_length: int


class TaskOutline(ResponseModel):
    """What an adapter in a list answers, and with how many labels."""

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
    deprecation: Annotated[str | None, Field(exclude_if=_is_none)] = None


class VersionSummary(_Version):
    """A version in a list: of about half a kilobyte, however many labels it has. `AdapterVersion` says the rest."""

    task: TaskOutline


class AdapterVersion(_Version):
    """One immutable version of an adapter; `metrics` are those recorded by its training.

    `created_by` is who uploaded it. `deprecation` says why not to use it any more, absent for most.
    """

    task: TaskSummary
    metrics: dict[str, float] = Field(default_factory=dict)


class UploadedVersion(AdapterVersion):
    """The version that an upload's bytes are; `created` is false where they were a version already.

    `live` is which versions answer the bare name now, each with its share of the requests; `aliases` are the adapter's.
    """

    created: bool = True
    live: Split = Field(default_factory=dict)
    aliases: dict[str, Split] = Field(default_factory=dict)


class Adapter(ResponseModel):
    """An adapter by name, with the newest of its versions and what its aliases mean.

    A `public` one can be used by other tenants, as `tenant:name`. `live` is which versions answer the bare name, each
    with its share of the requests.
    """

    tenant: str
    name: str
    public: bool = False
    num_versions: int
    latest: AdapterVersion
    live: Split = Field(default_factory=dict)
    aliases: dict[str, Split] = Field(default_factory=dict)


class AdapterSummary(ResponseModel):
    """An adapter in a list. `Adapter` says the rest: labels, metrics and aliases."""

    tenant: str
    name: str
    public: bool = False
    num_versions: int
    latest: VersionSummary
    live: Split = Field(default_factory=dict)


class AdapterChange(RequestModel):
    """What an adapter is to be."""

    public: StrictBool


class DeprecationRequest(RequestModel):
    """Why a version is not to be used any more; null takes a deprecation back."""

    reason: Annotated[str, Field(min_length=1, max_length=1000)] | None


class AdapterPage(ResponseModel):
    """Some adapters in order of name; `next_cursor` asks for those that follow, null on the last page."""

    adapters: list[AdapterSummary]
    next_cursor: str | None = None


class VersionList(ResponseModel):
    """Some live versions of an adapter, newest first; `next_cursor` asks for older ones, null on the last page."""

    versions: list[VersionSummary]
    next_cursor: str | None = None
