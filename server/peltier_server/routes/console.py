"""The console: a page for browsers that uses only the public API, with the visitor's key.

Its files are the same for everybody, so they need no key. `make console` builds them from console/.
"""

from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from peltier_client.errors import NotFound

from peltier_server.http.request_middleware import CONSOLE
from peltier_server.http.scoped_route import open_router
from peltier_server.http.static_build import read_build

_BUILD = Path(__file__).parent.parent / "console"
_PAGE = "index.html"
# A browser enforces this policy. Whatever a text, a label or an uploaded file contains, the page runs no script but its
# own and sends nothing to another server.
_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def console_router(build: Path) -> APIRouter:
    """The routes of the console whose files are in the folder `build`."""
    router, files = open_router(include_in_schema=False), read_build(build)

    @router.get(CONSOLE)
    async def console() -> Response:
        """Leads to the page. Its addresses are relative, for servers behind a path, and so is this one."""
        return RedirectResponse(f"{CONSOLE[1:]}/")

    @router.get(f"{CONSOLE}/{{path:path}}")
    async def console_file(path: str, request: Request) -> Response:
        """The page or a file that it names."""
        if _PAGE not in files:
            raise NotFound("this server has no console: run `make console` in its sources, and start it again")
        file = files.get(path or _PAGE)
        if file is None:
            raise NotFound(f"the console has no file {path!r}")
        answer = await file.answer(request)
        answer.headers.update(_HEADERS)
        return answer

    return router


router = console_router(_BUILD)
