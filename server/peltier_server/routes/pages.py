"""Pages for people with a browser. They load nothing from other servers, so that they work behind a firewall."""

from pathlib import Path

import fastapi_offline
from fastapi import Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response

from peltier_server.http.application import state_of
from peltier_server.http.scoped_route import open_router

_ASSETS = Path(fastapi_offline.__file__).with_name("static")
_SCRIPT, _STYLE = "swagger-ui-bundle.js", "swagger-ui.css"
# Any key may read these paths, whatever its scopes: the operator does not need to hide which calls exist.
KEYED_PATHS = frozenset({"/docs", f"/docs/{_SCRIPT}", f"/docs/{_STYLE}"})

# The links are the same for every server, so that callers without a key learn nothing about this one.
_LINKS = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "adapters": "/v1/adapters",
    "predict": "/v1/tasks/{task}/predict",
    "info": "/info",
    "metrics": "/metrics",
    "health": "/health",
    "ready": "/ready",
}
# A browser enforces this policy, whatever Swagger UI tries to load.
_OWN_ORIGIN = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; frame-ancestors 'none'"
)

router = open_router(include_in_schema=False)


@router.get("/")
async def landing(request: Request) -> Response:
    """Leads browsers to the console, by an address that is right behind a path too. Programs read what there is."""
    headers, state = {"vary": "accept"}, state_of(request)
    console = {} if state.page is None else {"console": state.page}
    if state.page is not None and "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(f"{state.page[1:]}/", headers=headers)
    return JSONResponse({"name": "peltier", **console, **_LINKS}, headers=headers)


@router.get("/docs")
async def docs() -> Response:
    """Swagger UI over this server's OpenAPI; addresses are relative, for servers behind a path."""
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Peltier: every call",
        swagger_css_url=f"docs/{_STYLE}",
        swagger_js_url=f"docs/{_SCRIPT}",
        swagger_favicon_url="data:,",
    )
    page.headers["content-security-policy"] = _OWN_ORIGIN
    return page


@router.get(f"/docs/{_SCRIPT}")
async def docs_script() -> Response:
    """Swagger UI itself."""
    return FileResponse(_ASSETS / _SCRIPT, media_type="text/javascript")


@router.get(f"/docs/{_STYLE}")
async def docs_style() -> Response:
    """How Swagger UI looks."""
    return FileResponse(_ASSETS / _STYLE, media_type="text/css")
