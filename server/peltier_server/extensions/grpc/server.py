"""The gRPC server of the Open Inference Protocol."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

import grpc
import grpc.aio
from fastapi import FastAPI
from google.protobuf.message import DecodeError
from peltier_client.errors import BadRequest, PeltierError, QueueFull, TooLarge, TooSlow

from peltier_server import retry_hints
from peltier_server.extensions.grpc.fields import has_more_fields
from peltier_server.extensions.grpc.messages import METHODS, Method, read_error
from peltier_server.extensions.grpc.settings import MAX_CONNECTIONS, GrpcSettings
from peltier_server.fairness.shared_bound import SharedBound, Shares, max_alone
from peltier_server.http.app_call import AppCall
from peltier_server.http.application import AppState
from peltier_server.http.bodies import BYTES_PER_COST, SMALL_BODY_BYTES
from peltier_server.protocols.oip.messages import OIP_ERRORS, oip_error
from peltier_server.settings import CoreSettings, SettingsError

logger = logging.getLogger(__name__)

_SERVICE = "inference.GRPCInferenceService"
# A connection ends after this time, once its calls have ended or the time of grace is over.
_MAX_AGE_SECONDS = 600.0
_GRACE_SECONDS = 300.0
# A caller who does not begin to speak gRPC holds a connection for this time.
_HANDSHAKE_SECONDS = 5.0
# How long a connection without calls stays open. gRPC has no rule by which new connections displace idle ones, and
# channels connect again by themselves.
_IDLE_SECONDS = 10.0
# The most calls of callers with a key, because each holds a whole message. A connection has at most those that a tenant
# may have alone: gRPC makes no object of further ones, which a caller who takes them back at once could otherwise cause
# without an end.
_MAX_CALLS = 128
# The most calls that need no key. An answer takes some milliseconds unless the caller does not take it.
_MAX_PROBES = 64
# Fields and lengths that a message has beside its texts or its answer.
_MESSAGE_BYTES = 1024 * 1024
# The most fields of a message: for each input three texts, and for all of them the names and parameters of tensors.
_FIELDS_PER_INPUT, _MIN_FIELDS = 3, 1024
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


class GrpcServer:
    """Serves the calls of the protocol by `app`, on the address of the settings and a port of its own.

    A call is a request of the app: caller, scopes, quotas, limits, drain, metrics, traces and answers are as over HTTP.
    The metadata `authorization`, `x-request-id`, `x-session-id`, `traceparent` and `tracestate` are its headers.

    The server checks the key before it reads the message, and calls without a right key take no place of others. The
    message must arrive within `stall_seconds`, and the caller must take the answer in the same time. The answer counts
    among the bytes of answers until the caller has taken it or the connection has ended, because gRPC keeps it so long.
    A connection is closed when it is old or idle.
    """

    def __init__(self, app: FastAPI, settings: CoreSettings) -> None:
        own = settings.group(GrpcSettings)
        self.port = own.grpc_port or 0
        self._app = app
        self._host = settings.network.host
        self._certificate, self._private_key = own.grpc_certificate, own.grpc_private_key
        limits = settings.limits
        self._stall_seconds = limits.stall_seconds
        self._calls = SharedBound(_MAX_CALLS, "calls over gRPC")
        self._probes = Shares(_MAX_PROBES)
        self._options = (
            ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
            ("grpc.max_concurrent_streams", max_alone(_MAX_CALLS)),
            ("grpc.server_handshake_timeout_ms", _milliseconds(min(_HANDSHAKE_SECONDS, limits.stall_seconds))),
            ("grpc.max_connection_idle_ms", _milliseconds(_IDLE_SECONDS)),
            ("grpc.max_connection_age_ms", _milliseconds(_MAX_AGE_SECONDS)),
            ("grpc.max_connection_age_grace_ms", _milliseconds(_GRACE_SECONDS)),
            ("grpc.max_receive_message_length", limits.max_body_bytes + _MESSAGE_BYTES),
            ("grpc.max_send_message_length", limits.max_answer_bytes + _MESSAGE_BYTES),
            # Otherwise two servers could share a port.
            ("grpc.so_reuseport", 0),
        )
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listens. Raises `SettingsError` if the port is taken, or if the certificate or its key cannot be used."""
        server = grpc.aio.server(options=self._options)
        handlers = {name: self._handler(method) for name, method in METHODS.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        host = f"[{self._host}]" if ":" in self._host else self._host
        try:
            self.port = self._bind(server, f"{host}:{self.port}")
        except RuntimeError:
            raise SettingsError(f"grpc_port {self.port} cannot be bound on {self._host}: it may be in use") from None
        await server.start()
        self._server = server
        logger.info("gRPC at %s:%d%s", host, self.port, " with TLS" if self._certificate else "")

    async def close(self) -> None:
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

    def _handler(self, method: Method) -> grpc.RpcMethodHandler:
        async def handle(_: Any, context: Any) -> None:
            await self._handle(method, context)

        # A handler of a unary call would begin when the message is there.
        return grpc.stream_stream_rpc_method_handler(
            handle,
            response_serializer=lambda message: message.SerializeToString(),
        )

    async def _handle(self, method: Method, context: Any) -> None:
        started = time.monotonic()
        headers = {name: value for name, value in context.invocation_metadata() or () if name in _HEADERS}
        state: AppState = self._app.state  # type: ignore[assignment]
        try:
            if method.is_open:
                with self._hold_probe(context.peer().rpartition(":")[0]):
                    answer = await self._ask(method, method.make(method.kind(), None), headers, context)
                    await self._send(context, answer, lambda: None)
                return
            tenant = (await state.authenticator.caller(headers)).tenant
            with self._calls.hold(tenant, 1):
                data = await self._receive(context)
                read = partial(_read, method, data, context.time_remaining(), state.preparation.limits.max_inputs)
                if len(data) <= SMALL_BODY_BYTES:
                    call = read()
                else:
                    call = await state.preparation.run(tenant, len(data) // BYTES_PER_COST, read)
                answer = await self._ask(method, call, headers, context)
                await self._send(context, answer, state.preparation.answer_bytes.hold(tenant, answer.ByteSize()).end)
        except PeltierError as error:
            state.metrics.observe_request(None, error.status, time.monotonic() - started)
            wait = () if error.retry_after is None else (("retry-after", str(max(1, round(error.retry_after)))),)
            await context.abort(_code(OIP_ERRORS.status(error)), oip_error(error).error, wait)

    async def _receive(self, context: Any) -> bytes:
        """The message of the call, unread. Raises `TooSlow`, or `BadRequest` for a call without one."""
        try:
            async with asyncio.timeout(self._stall_seconds):
                message: bytes = await context.read()
        except TimeoutError:
            raise TooSlow(f"the message did not arrive within {self._stall_seconds:g} s") from None
        if message is grpc.aio.EOF:
            raise BadRequest("the call has no message")
        return message

    async def _send(self, context: Any, answer: Any, end: Callable[[], None]) -> None:
        """Sends `answer`, and calls `end` once gRPC does not keep it. Raises `TooSlow` if nobody takes it in time."""

        def finish(sending: asyncio.Task[None]) -> None:
            end()
            if not sending.cancelled():
                sending.exception()  # of a caller who has left, for nobody if the wait is over

        # A write that is cancelled frees nothing: gRPC keeps the answer until the connection ends.
        sending = asyncio.create_task(context.write(answer))
        sending.add_done_callback(finish)
        done, _ = await asyncio.wait({sending}, timeout=self._stall_seconds)
        if not done:
            raise TooSlow(f"the caller did not take the answer within {self._stall_seconds:g} s")
        await sending

    @contextmanager
    def _hold_probe(self, address: str) -> Iterator[None]:
        """Counts an open call of an address, which leaves places to others. Raises `QueueFull` if it has no place."""
        if self._probes.rest(1) < 0 or not self._probes.allows(address, 1, 1):
            raise QueueFull(
                f"{self._probes.held(address)} probes over gRPC of {address} are in progress, and {self._probes.taken} "
                f"of at most {_MAX_PROBES} of all addresses; 1 more does not fit",
                retry_after=retry_hints.SOON,
            )
        self._probes.take(address, 1, 1)
        try:
            yield
        finally:
            self._probes.give_back(address, 1, 1)

    async def _ask(self, method: Method, call: AppCall, headers: Mapping[str, str], context: Any) -> Any:
        """The message that answers `call`. Ends the call of `context` with an error if the app answers with one."""
        call.headers |= headers
        answer = await call.send(self._app)
        shown = tuple((name, value) for name, value in answer.headers.items() if name.startswith(_SHOWN))
        context.set_trailing_metadata(shown)
        if answer.status >= HTTPStatus.BAD_REQUEST and answer.status not in method.accepted:
            await context.abort(_code(answer.status), read_error(answer), shown)
        return method.read(answer)


def _read(method: Method, data: bytes, seconds_left: float | None, max_inputs: int) -> AppCall:
    """The request of a message. Raises `TooLarge` for more fields than any request needs, and `BadRequest` for bytes
    that are no message of this method."""
    limit = _MIN_FIELDS + _FIELDS_PER_INPUT * max_inputs
    if has_more_fields(data, method.kind.DESCRIPTOR, limit):
        raise TooLarge(f"the message has more than {limit} fields")
    try:
        message = method.kind.FromString(data)
    except DecodeError:
        raise BadRequest(f"the message is not the protobuf of a {method.kind.DESCRIPTOR.name}") from None
    return method.make(message, seconds_left)


def _milliseconds(seconds: float) -> int:
    return int(1000 * seconds)


def _code(status: int) -> grpc.StatusCode:
    return _CODES.get(status, grpc.StatusCode.INTERNAL)
