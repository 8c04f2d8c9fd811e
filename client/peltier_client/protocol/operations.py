"""The server about itself: alive, ready, what it runs."""

from typing import Annotated, Literal

from pydantic import Field

from peltier_client.protocol.predict import AdapterRef
from peltier_client.protocol.wire import ResponseModel


class HealthResponse(ResponseModel):
    """The process is alive."""

    status: Literal["ok"] = "ok"


class ReadyResponse(ResponseModel):
    """Predictions are answered; while loading or draining the server answers an error in its place."""

    status: Literal["ready"] = "ready"


def _is_none(value: object) -> bool:
    return value is None


class BackboneInfo(ResponseModel):
    """The frozen model. `name` is what the operator asked for, `fingerprint` is what adapters are checked against.

    `num_layers` are the encoder's; `num_decoder_layers` is there where the model generates text.
    """

    name: str
    family: str
    fingerprint: str
    hidden_size: int
    num_layers: int
    num_decoder_layers: Annotated[int | None, Field(exclude_if=_is_none)] = None
    num_heads: int
    max_length: int
    device: str
    dtype: str


class QuarantinedVersion(ResponseModel):
    """A version that is refused to the caller's tenant by this replica, because it failed so many times in a row; the
    last reason, and when it is tried again."""

    adapter: AdapterRef
    num_failures: int
    reason: str
    retry_after_seconds: float


class InfoResponse(ResponseModel):
    """What runs here: release, backbone, chosen kernels, limits by name, number of the tenant's own adapters."""

    version: str
    backbone: BackboneInfo
    kernels: dict[str, str] = Field(default_factory=dict)
    limits: dict[str, int] = Field(default_factory=dict)
    num_adapters: int
    quarantined: list[QuarantinedVersion] = Field(default_factory=list)
