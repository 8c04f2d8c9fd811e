"""Aliases on the wire: names for versions that can be moved in one step."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, StrictInt, model_validator

from peltier_client.protocol.names import MAX_VERSION
from peltier_client.protocol.wire import RequestModel, ResponseModel

Share = Annotated[float, Field(strict=True)]
Split = dict[Annotated[int, Field(ge=1, le=MAX_VERSION)], Share]


# Lists show what the bare name means.
MAX_SPLIT_VERSIONS = 32


class AliasRequest(RequestModel):
    """What an alias is to mean: one version, or several with the share of requests that each gets.

    The shares are above 0 and sum to 1. Which version answers is drawn from the request's `x-request-id`.
    """

    version: Annotated[StrictInt, Field(ge=1, le=MAX_VERSION)] | None = None
    versions: Annotated[Split, Field(max_length=MAX_SPLIT_VERSIONS)] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.version is None) == (self.versions is None):
            raise ValueError('either {"version": 3} or {"versions": {"3": 0.9, "4": 0.1}} is wanted')
        return self

    @property
    def split(self) -> Split:
        """The share of each version."""
        return {self.version: 1.0} if self.version is not None else dict(self.versions or {})


class Alias(ResponseModel):
    """What an alias means: the share of requests that each version gets; who said so and when."""

    alias: str
    versions: Split
    created_at: datetime
    created_by: str


class AliasList(ResponseModel):
    """Every alias of one adapter, in order of name."""

    aliases: list[Alias]


class AliasChange(ResponseModel):
    """What an alias meant from a moment on, and who said so. No versions: it was deleted."""

    versions: Split
    created_at: datetime
    created_by: str


class AliasHistory(ResponseModel):
    """What an alias has meant, newest first; the last thousand changes, rollbacks among them."""

    changes: list[AliasChange]
