"""The base classes of wire types: requests are checked strictly, responses may gain keys."""

from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")


class RequestModel(BaseModel):
    """A body that clients send. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseModel(BaseModel):
    """A body that servers send. Clients ignore unknown keys, so that servers may add some."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class OpenAIPage(ResponseModel, Generic[T]):
    """A page of a list as OpenAI's API has it. `last_id` is the `after` of the next page if `has_more` is true."""

    object: Literal["list"] = "list"
    data: list[T]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False

    @property
    def next_cursor(self) -> str | None:
        """The `after` of the next page; None on the last page."""
        return self.last_id if self.has_more else None
