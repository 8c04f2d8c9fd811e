"""A stand-in for an OpenTelemetry collector: it takes traces by OTLP over HTTP, and keeps them."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """What has arrived so far."""

    def __init__(self) -> None:
        self.url = ""
        self.resources: list[Resource] = []
        self.spans: list[Span] = []

    def take(self, path: str, body: bytes) -> None:
        """Reads a message of one signal."""
        if path == "/v1/traces":
            for traced in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(traced.resource)
                self.spans += [span for scope in traced.scope_spans for span in scope.spans]

    def named(self, name: str) -> list[Span]:
        """The spans of this name."""
        return [span for span in self.spans if span.name == name]


def values(attributes: Iterator[KeyValue]) -> dict[str, str | int]:
    """Attributes of text or an integer."""
    return {one.key: one.value.string_value or one.value.int_value for one in attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on loopback."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.take(self.path, gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
