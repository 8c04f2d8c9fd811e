"""Which route a request has come to, in words that are bounded in number."""

from typing import NamedTuple

from starlette.types import Scope

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# No path of a route is without a slash.
_NO_ROUTE = "none"
_NO_METHOD = "other"


class MatchedRoute(NamedTuple):
    """A method and the template of a path, such as `/v1/tasks/{task}/predict`: never what a caller has written."""

    method: str
    path: str


def matched_route(scope: Scope) -> MatchedRoute:
    """The route that has answered; its path is "none" where the request was refused before, and for unknown paths."""
    method = scope["method"]
    path = getattr(scope.get("route"), "path", _NO_ROUTE)
    return MatchedRoute(method if method in _METHODS else _NO_METHOD, path)
