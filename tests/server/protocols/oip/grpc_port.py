"""The port of a server that has chosen a free one for its calls over gRPC."""

from typing import Any

from fastapi import FastAPI


def grpc_port(app: FastAPI) -> int:
    """The one that a started app listens at, whose setting `grpc_port` is 0."""
    lifespan: Any = app.router.lifespan_context
    *_, server = lifespan.args
    port: int = server.port
    return port
