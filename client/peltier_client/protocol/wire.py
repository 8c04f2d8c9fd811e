"""The two kinds of wire type: what a client sends is checked to the letter, what a server sends may grow."""

from pydantic import BaseModel, ConfigDict


class RequestModel(BaseModel):
    """A body that clients send: a key that the protocol does not know is refused, not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseModel(BaseModel):
    """A body that servers send: keys that this client does not know are ignored, so servers may add some."""

    model_config = ConfigDict(extra="ignore", frozen=True)
