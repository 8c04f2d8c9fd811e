"""moto's S3 server, answering one request at a time.

moto looks whether an object exists and then creates it. Of two writers at the same moment both may find nothing, so
`If-None-Match: *` would let both create the object.
"""

import threading
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

_APP = DomainDispatcherApplication(create_backend_app)
_TURN = threading.Lock()


def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """moto's answer to one request."""
    with _TURN:
        answered: Iterable[bytes] = _APP(environ, start_response)
        return answered


if __name__ == "__main__":
    run_simple("127.0.0.1", 0, answer, threaded=True, request_handler=MotoRequestHandler)
