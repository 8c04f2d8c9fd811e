"""Aliases on the wire: names of versions that can be changed atomically."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, StrictInt, model_validator

from peltier_client.protocol.names import MAX_VERSION
from peltier_client.protocol.wire import RequestModel, ResponseModel

Share = Annotated[float, Field(strict=True)]
Split = dict[Annotated[int, Field(ge=1, le=MAX_VERSION)], Share]
MAX_SPLIT_VERSIONS = 32  # bounds the size of lists, which hold the splits


class AliasRequest(RequestModel):
    """One version for an alias, or several with the share of requests that each gets. The shares are above 0 and sum to
    1. The request's `x-request-id` decides which version answers."""

    version: Annotated[StrictInt, Field(ge=1, le=MAX_VERSION)] | None = None
    versions: Annotated[Split, Field(max_length=MAX_SPLIT_VERSIONS)] | None = None

    @model_validator(mode="after")
    def _one_of_all(self) -> Self:
        if (self.version is None) == (self.versions is None):
            raise ValueError('give one of {"version": 3} or {"versions": {"3": 0.9, "4": 0.1}}')
        return self

    @property
    def split(self) -> Split:
        """The share of each version."""
        return {self.version: 1.0} if self.version is not None else dict(self.versions or {})


class Alias(ResponseModel):
    """An alias: the share of requests that each version gets, and who set it when."""

    alias: str
    versions: Split
    created_at: datetime
    created_by: str


class AliasList(ResponseModel):
    """Every alias of one adapter, in order of name."""

    aliases: list[Alias]


class AliasChange(ResponseModel):
    """A change of an alias and who made it when. Without versions, the alias was deleted."""

    versions: Split
    created_at: datetime
    created_by: str


class AliasHistory(ResponseModel):
    """The last thousand changes of an alias, newest first, including rollbacks."""

    changes: list[AliasChange]
