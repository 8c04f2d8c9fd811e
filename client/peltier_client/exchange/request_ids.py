"""The `x-request-id` of a request, by which its answer is recognised."""

import re
from uuid import uuid4

import httpx2

REQUEST_ID_HEADER = "x-request-id"
# Ids of this form are made by clients alone. A proxy that replaces ids answers with one of another form.
_OWN_FORM = re.compile(r"peltier-[0-9a-f]{32}")


def new_request_id() -> str:
    """An id that no other request of any process has."""
    return f"peltier-{uuid4().hex}"


def foreign_request_id(response: httpx2.Response) -> str | None:
    """The id of another client's request, if the response answers that one."""
    found = _OWN_FORM.findall(response.headers.get(REQUEST_ID_HEADER, ""))
    is_own = not found or response.request.headers[REQUEST_ID_HEADER] in found
    return None if is_own else str(found[0])
