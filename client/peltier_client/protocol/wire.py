"""The base classes of wire types: requests are checked strictly, responses may gain keys."""

from pydantic import BaseModel, ConfigDict


class RequestModel(BaseModel):
    """A body that clients send. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseModel(BaseModel):
    """A body that servers send. Clients ignore unknown keys, so that servers may add some."""

    model_config = ConfigDict(extra="ignore", frozen=True)
