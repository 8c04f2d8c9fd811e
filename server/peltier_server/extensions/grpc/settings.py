"""The settings of the gRPC port, which are among those of the network."""

from pathlib import Path
from typing import Self

from pydantic import model_validator

from peltier_server.settings_group import SettingsGroup, setting

# The most connections of the port.
MAX_CONNECTIONS = 256


class GrpcSettings(SettingsGroup):
    """The port for gRPC, at the host of the server."""

    grpc_port: int | None = setting(
        None, "Port for the Open Inference Protocol over gRPC; 0 chooses a free one. Default: none.", ge=0, le=65535
    )
    grpc_certificate: Path | None = setting(
        None, "Certificate chain of the gRPC port, a PEM file; needs grpc_private_key. Default: no TLS."
    )
    grpc_private_key: Path | None = setting(None, "Private key of grpc_certificate, a PEM file.")

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if (self.grpc_certificate is None) != (self.grpc_private_key is None):
            raise ValueError("TLS of the gRPC port needs both grpc_certificate and grpc_private_key")
        if self.grpc_certificate is not None and self.grpc_port is None:
            raise ValueError("grpc_certificate is for the gRPC port: set grpc_port")
        return self
