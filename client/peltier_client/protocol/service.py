"""The server about itself: alive, ready, what it runs."""

from typing import Literal

from pydantic import Field

from peltier_client.protocol.wire import ResponseModel


class HealthResponse(ResponseModel):
    """The process is alive."""

    status: Literal["ok"] = "ok"


class ReadyResponse(ResponseModel):
    """Predictions are answered; while loading or draining the server answers an error in its place."""

    status: Literal["ready"] = "ready"


class BackboneInfo(ResponseModel):
    """The frozen model. `name` is what the operator asked for, `fingerprint` is what adapters are checked against."""

    name: str
    family: str
    fingerprint: str
    hidden_size: int
    num_layers: int
    num_heads: int
    max_length: int
    device: str
    dtype: str


class InfoResponse(ResponseModel):
    """What runs here: release, backbone, chosen kernels, limits by name, number of adapters published."""

    version: str
    backbone: BackboneInfo
    kernels: dict[str, str] = Field(default_factory=dict)
    limits: dict[str, int] = Field(default_factory=dict)
    num_adapters: int
