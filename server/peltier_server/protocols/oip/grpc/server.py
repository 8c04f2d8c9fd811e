"""The gRPC server of the Open Inference Protocol."""

import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

import grpc
import grpc.aio
from peltier_client.errors import PeltierError
from starlette.types import ASGIApp

from peltier_server.http.app_call import AppAnswer, AppCall
from peltier_server.protocols.oip.grpc import messages
from peltier_server.protocols.oip.grpc import open_inference_pb2 as proto
from peltier_server.protocols.oip.messages import OIP_ERRORS
from peltier_server.settings import Settings, SettingsError

logger = logging.getLogger(__name__)

_SERVICE = "inference.GRPCInferenceService"
# The most calls at a time. gRPC receives whole messages, also of callers without a key, before the app can count them.
_MAX_CALLS = 128
# Fields and lengths that a message has beside its texts or its answer.
_MESSAGE_BYTES = 1024 * 1024
# The headers that a caller may set by metadata. The others belong to HTTP.
_HEADERS = frozenset({"authorization", "x-request-id", "x-session-id", "traceparent", "tracestate"})
_SHOWN = ("x-", "retry-after", "ratelimit-")
_CODES: Mapping[int, grpc.StatusCode] = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    424: grpc.StatusCode.FAILED_PRECONDITION,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
# Calls that say whether something is ready. That it is not is no error there.
_NOT_READY = frozenset({HTTPStatus.FAILED_DEPENDENCY, HTTPStatus.SERVICE_UNAVAILABLE})

AnswerReader = Callable[[AppAnswer], Any]
CallHandler = Callable[[Any, Any], Awaitable[Any]]


class GrpcServer:
    """Serves the calls of the protocol by `app`, on the address of the settings and a port of its own.

    A call is a request of the app: caller, scopes, quotas, limits, drain, metrics, traces and answers are as over HTTP.
    The metadata `authorization`, `x-request-id`, `x-session-id`, `traceparent` and `tracestate` are its headers.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.port = settings.network.grpc_port or 0
        self._app = app
        self._host = settings.network.host
        self._certificate, self._private_key = settings.network.grpc_certificate, settings.network.grpc_private_key
        limits = settings.limits
        self._options = (
            ("grpc.max_receive_message_length", limits.max_body_bytes + _MESSAGE_BYTES),
            ("grpc.max_send_message_length", limits.max_answer_bytes + _MESSAGE_BYTES),
            # Otherwise two servers could share a port.
            ("grpc.so_reuseport", 0),
        )
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listens. Raises `SettingsError` if the port is taken, or if the certificate or its key cannot be used."""
        server = grpc.aio.server(options=self._options, maximum_concurrent_rpcs=_MAX_CALLS)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, self._handlers),))
        host = f"[{self._host}]" if ":" in self._host else self._host
        try:
            self.port = self._bind(server, f"{host}:{self.port}")
        except RuntimeError:
            raise SettingsError(f"grpc_port {self.port} cannot be bound on {self._host}: it may be in use") from None
        await server.start()
        self._server = server
        logger.info("gRPC at %s:%d%s", host, self.port, " with TLS" if self._certificate else "")

    async def stop(self) -> None:
        """Ends calls in progress and stops listening. The app has drained before."""
        if self._server is not None:
            await self._server.stop(None)

    def _bind(self, server: grpc.aio.Server, address: str) -> int:
        """Returns the port. Raises `RuntimeError` if it is taken."""
        if self._certificate is None or self._private_key is None:
            return int(server.add_insecure_port(address))
        try:
            # gRPC would only say that it cannot bind. An encrypted key would ask the terminal for its password.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._private_key, password="")
            pair = self._private_key.read_bytes(), self._certificate.read_bytes()
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror
            raise SettingsError(
                f"TLS of gRPC cannot use {self._certificate} with the key {self._private_key}: {reason}"
            ) from None
        return int(server.add_secure_port(address, grpc.ssl_server_credentials([pair])))

    @property
    def _handlers(self) -> dict[str, grpc.RpcMethodHandler]:
        return {
            "ServerLive": self._handler(proto.ServerLiveRequest, messages.live_call, messages.read_live),
            "ServerReady": self._handler(
                proto.ServerReadyRequest, messages.ready_call, messages.read_ready, _NOT_READY
            ),
            "ServerMetadata": self._handler(
                proto.ServerMetadataRequest, messages.metadata_call, messages.read_metadata
            ),
            "ModelReady": self._handler(
                proto.ModelReadyRequest, messages.model_ready_call, messages.read_model_ready, _NOT_READY
            ),
            "ModelMetadata": self._handler(
                proto.ModelMetadataRequest, messages.model_metadata_call, messages.read_model_metadata
            ),
            "ModelInfer": _unary(proto.ModelInferRequest, self._infer),
            "RepositoryIndex": self._handler(proto.RepositoryIndexRequest, messages.index_call, messages.read_index),
            "RepositoryModelLoad": self._handler(
                proto.RepositoryModelLoadRequest, messages.load_call, messages.read_load
            ),
            "RepositoryModelUnload": self._handler(
                proto.RepositoryModelUnloadRequest, messages.unload_call, messages.read_unload
            ),
        }

    def _handler(
        self, kind: Any, make: Callable[[Any], AppCall], read: AnswerReader, accepted: frozenset[int] = frozenset()
    ) -> grpc.RpcMethodHandler:
        async def handle(request: Any, context: Any) -> Any:
            return await self._answer(context, partial(make, request), read, accepted)

        return _unary(kind, handle)

    async def _infer(self, request: proto.ModelInferRequest, context: Any) -> Any:
        make = partial(messages.infer_call, request, context.time_remaining())
        return await self._answer(context, make, messages.read_infer, frozenset())

    async def _answer(
        self, context: Any, make: Callable[[], AppCall], read: AnswerReader, accepted: frozenset[int]
    ) -> Any:
        try:
            call = make()
        except PeltierError as error:
            await context.abort(_code(OIP_ERRORS.status(error)), OIP_ERRORS.body(error).error)
        call.headers |= {name: value for name, value in context.invocation_metadata() or () if name in _HEADERS}
        answer = await call.send(self._app)
        shown = tuple((name, value) for name, value in answer.headers.items() if name.startswith(_SHOWN))
        context.set_trailing_metadata(shown)
        if answer.status >= HTTPStatus.BAD_REQUEST and answer.status not in accepted:
            await context.abort(_code(answer.status), messages.read_error(answer), shown)
        return read(answer)


def _unary(kind: Any, handle: CallHandler) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=kind.FromString, response_serializer=lambda message: message.SerializeToString()
    )


def _code(status: int) -> grpc.StatusCode:
    return _CODES.get(status, grpc.StatusCode.INTERNAL)
