"""Aliases on the wire: names of versions that can be changed atomically."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, StrictInt, model_validator

from peltier_client.protocol.names import MAX_VERSION
from peltier_client.protocol.predict import is_none
from peltier_client.protocol.rollouts import Rollout, RolloutGuard
from peltier_client.protocol.wire import RequestModel, ResponseModel

Share = Annotated[float, Field(strict=True)]
Split = dict[Annotated[int, Field(ge=1, le=MAX_VERSION)], Share]
MAX_SPLIT_VERSIONS = 32  # bounds the size of lists, which hold the splits


class AliasRequest(RequestModel):
    """One version for an alias, or several with the share of requests that each gets; or a `candidate` that the server
    compares with the version that the alias means, and then promotes or rolls back, as its `guard` says.

    The shares are above 0 and sum to 1. The request's `x-request-id` decides which version answers.
    """

    version: Annotated[StrictInt, Field(ge=1, le=MAX_VERSION)] | None = None
    versions: Annotated[Split, Field(max_length=MAX_SPLIT_VERSIONS)] | None = None
    candidate: Annotated[StrictInt, Field(ge=1, le=MAX_VERSION)] | None = None
    guard: RolloutGuard | None = None

    @model_validator(mode="after")
    def _one_of_all(self) -> Self:
        if sum(one is not None for one in (self.version, self.versions, self.candidate)) != 1:
            raise ValueError(
                'give one of {"version": 3}, {"versions": {"3": 0.9, "4": 0.1}} or {"candidate": 4, "guard": {…}}'
            )
        if (self.candidate is None) != (self.guard is None):
            raise ValueError("a candidate needs a guard, and a guard a candidate")
        return self

    @property
    def split(self) -> Split:
        """The share of each version."""
        return {self.version: 1.0} if self.version is not None else dict(self.versions or {})


class Alias(ResponseModel):
    """An alias: the share of requests that each version gets, and who set it when. `rollout` is its newest guarded
    change."""

    alias: str
    versions: Split
    created_at: datetime
    created_by: str
    rollout: Annotated[Rollout | None, Field(exclude_if=is_none)] = None


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
