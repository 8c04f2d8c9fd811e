"""What the server can serve besides its core: an extension is a value, and `app.py` has the tuple of them.

No module of the core imports an extension. What an extension needs of the core is public there.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fastapi import APIRouter, FastAPI
from opentelemetry.trace import Tracer

from peltier_server.auth.authenticator import TokenReader
from peltier_server.errors import ErrorShape
from peltier_server.metrics.metrics import Metrics
from peltier_server.service import Service
from peltier_server.settings import CoreSettings, SettingsError
from peltier_server.settings_group import SettingsGroup


class Started(Protocol):
    """What an extension has started. The extension's routes get it by its type, see `http.application.started`."""

    async def close(self) -> object:
        """Ends it. The service still answers meanwhile."""


class Tracing(Protocol):
    """Exports the spans of requests and batches."""

    @property
    def tracer(self) -> Tracer:
        """Makes the spans."""

    async def close(self) -> None:
        """Exports the remaining spans, and stops."""


async def _open_nothing(_app: FastAPI, _settings: CoreSettings) -> None:
    return None


@dataclass(frozen=True)
class Extension:
    """A part of the server that can be left out.

    `check` raises `SettingsError` if a package is missing that the settings need, and so do `create_tokens`, for tokens
    in place of keys, and `create_tracing`; nothing has started then. They return None where nothing is wanted. `open`
    starts what serves beside the app, before the backbone is loaded; it may raise `SettingsError`, and returns None
    where the settings want nothing. `start` starts what needs the service, before the service begins to answer.
    """

    name: str
    # Its own settings. Where it is left out, one that is off by default asks for it in vain and is refused.
    settings: type[SettingsGroup] | None = None
    # A route takes the place of the core's route with its path and methods.
    routers: tuple[APIRouter, ...] = ()
    error_shapes: tuple[ErrorShape, ...] = ()
    # A class that declares metrics, see `Metrics.group`.
    metrics: Callable[[Metrics], object] | None = None
    # The path of a page for browsers, to which the front page leads. It and the files below it need no caller.
    page: str | None = None
    check: Callable[[CoreSettings], None] = lambda _: None
    create_tokens: Callable[[CoreSettings], TokenReader | None] = lambda _: None
    create_tracing: Callable[[], Tracing | None] = lambda: None
    open: Callable[[FastAPI, CoreSettings], Awaitable[Started | None]] = _open_nothing
    start: Callable[[FastAPI, Service], Started] | None = None
    # Starts what logs that something of it waits in the store, in place of all else, where the settings leave it out.
    remind: Callable[[FastAPI, Service], Started] | None = None
    # The most files and connections that it has open besides those of its routes.
    count_files: Callable[[CoreSettings], int] = lambda _: 0


def choose_extensions(
    extensions: Sequence[Extension], settings: CoreSettings, known: Sequence[Extension] = ()
) -> list[Extension]:
    """The extensions; those that the settings leave out have their reminders alone. Raises `SettingsError` for an
    unknown name, and for a setting that asks for one of these or of the `known` ones that are not there."""
    names, without = [one.name for one in extensions], settings.extensions.without_names
    for name in without:
        if name not in names:
            raise SettingsError(f"without names {name!r}, which is no extension; there are {', '.join(names)}")
    for one in (*extensions, *known):
        if one.name in without or one.name not in names:
            _refuse_requests_for(one, settings)
    return [Extension(one.name, start=one.remind) if one.name in without else one for one in extensions]


def _refuse_requests_for(left_out: Extension, settings: CoreSettings) -> None:
    if left_out.settings is None:
        return
    for group in (group for _, group in settings if isinstance(group, left_out.settings)):
        for name, field in left_out.settings.model_fields.items():
            if not field.default and getattr(group, name) != field.default:
                raise SettingsError(
                    f"{name} asks for the extension {left_out.name!r}, which is left out: unset it, or keep that"
                )
