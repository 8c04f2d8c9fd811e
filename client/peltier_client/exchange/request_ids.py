"""The `x-request-id` of a request, by which its answer is recognised."""

import hashlib
import re
from uuid import uuid4

import httpx2

REQUEST_ID_HEADER = "x-request-id"
# Ids of this form are made by clients alone. A proxy that replaces ids answers with one of another form.
_OWN_FORM = re.compile(r"peltier-[0-9a-f]{32}(?:-[0-9a-f]{16})?")


def new_request_id(request: httpx2.Request) -> str:
    """An id that no other request of any process has. That of a GET ends with a digest of what is asked for."""
    # A cache gives the answer to an earlier GET, with that one's id. It is the right answer if both ask for the same.
    asked = f"-{hashlib.sha256(request.url.raw_path).hexdigest()[:16]}" if request.method == "GET" else ""
    return f"peltier-{uuid4().hex}{asked}"


def foreign_request_id(response: httpx2.Response) -> str | None:
    """The id of another client's request, if the response answers that one."""
    found: list[str] = _OWN_FORM.findall(response.headers.get(REQUEST_ID_HEADER, ""))
    own = response.request.headers[REQUEST_ID_HEADER]
    # Of a POST all of the id, of a GET its digest.
    wanted = own if response.request.method != "GET" else own[-17:]
    is_own = not found or any(one.endswith(wanted) for one in found)
    return None if is_own else found[0]
