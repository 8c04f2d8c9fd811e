"""The server for calls over gRPC of a started app, and its port, which it has chosen itself."""

from fastapi import FastAPI
from peltier_server.extensions.grpc.server import GrpcServer

# What a client sends first: the beginning of HTTP/2, and a frame of no settings.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def grpc_of(app: FastAPI) -> GrpcServer:
    """The server that a started app has."""
    return app.state.started[GrpcServer]


def grpc_port(app: FastAPI) -> int:
    """The one that a started app listens at, whose setting `grpc_port` is 0."""
    return grpc_of(app).port
