"""The server's health, readiness and configuration on the wire."""

from typing import Annotated, Literal

from pydantic import Field

from peltier_client.protocol.predict import AdapterRef, is_none
from peltier_client.protocol.wire import ResponseModel


class HealthResponse(ResponseModel):
    """The process is alive."""

    status: Literal["ok"] = "ok"


class ReadyResponse(ResponseModel):
    """The server accepts predictions; while loading or draining it answers an error instead."""

    status: Literal["ready"] = "ready"


class BackboneInfo(ResponseModel):
    """The frozen model. `name` is the operator's setting; adapters must match `fingerprint`.

    `num_layers` counts the encoder's layers; `num_decoder_layers` is present if the model generates text.
    """

    name: str
    family: str
    fingerprint: str
    hidden_size: int
    num_layers: int
    num_decoder_layers: Annotated[int | None, Field(exclude_if=is_none)] = None
    num_heads: int
    max_length: int
    device: str
    dtype: str


class QuarantinedVersion(ResponseModel):
    """A version that this replica refuses to the caller's tenant after `num_failures` failures in a row, with the last
    reason and the time until it is tried again."""

    adapter: AdapterRef
    num_failures: int
    reason: str
    retry_after_seconds: float


class InfoResponse(ResponseModel):
    """The release, backbone, chosen kernels and limits of the server, and the number of the tenant's adapters. The last
    eight repeat some of it by the names that clients of text-embeddings-inference read."""

    version: str
    backbone: BackboneInfo
    kernels: dict[str, str] = Field(default_factory=dict)
    experimental: list[str] = Field(
        default_factory=list, description="Devices in use on which the server's code has not been tested: `cuda`."
    )
    limits: dict[str, int] = Field(default_factory=dict)
    num_adapters: int
    quarantined: list[QuarantinedVersion] = Field(default_factory=list)
    model_id: str = ""
    model_sha: str = ""
    model_dtype: str = ""
    max_input_length: int = 0
    max_batch_tokens: int = 0
    max_client_batch_size: int = 0
    max_concurrent_requests: int = 0
    auto_truncate: bool = False
