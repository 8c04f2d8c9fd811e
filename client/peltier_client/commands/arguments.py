"""Arguments and options that several commands share, shell completion of task names, and how commands print their
result and the next step after an error."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter
from itertools import islice
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from pydantic_core import to_json

from peltier_client.commands.field_options import set_parameters
from peltier_client.errors import (
    AdapterNotFound,
    BatchNotFound,
    ConnectionFailed,
    Forbidden,
    InvalidInput,
    PeltierError,
    TrainingNotFound,
    Unauthorized,
    VersionNotFound,
)
from peltier_client.exchange.connection import DEFAULT_URL, check_api_key, check_url, is_unconnected
from peltier_client.protocol.names import TaskReference, check_name
from peltier_client.synchronous import Client

# The shell waits for this.
_TIMEOUT_SECONDS = 1.0
_MAX_NAMES = 100
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
TextColumns = Annotated[
    list[str] | None,
    typer.Option("--text-column", help="A text column; twice for a pair, three times on a T5. Default: text."),
]
BatchSize = Annotated[int, typer.Option(min=1, help="Maximum rows per request.")]
Concurrency = Annotated[int, typer.Option(min=1, max=64, help="Maximum concurrent requests.")]
DEFAULT_BATCH_SIZE = 64
DEFAULT_CONCURRENCY = 4


@contextmanager
def with_next_steps(api_key: str | None) -> Iterator[None]:
    """Errors raised inside get a second part: which command or setting to try."""
    try:
        yield
    except PeltierError as error:
        if step := next_step(error, api_key):
            error.message = f"{error.message}; {step}"
            error.args = (error.message,)
        raise


def next_step(error: PeltierError, api_key: str | None) -> str | None:
    """What to do after `error`, without a capital or a full stop; None if that is not known."""
    if isinstance(error, Unauthorized):
        return "set PELTIER_API_KEY" if api_key is None else "check PELTIER_API_KEY or --api-key"
    for kind, step in _STEPS.items():
        if isinstance(error, kind):
            return step(error)
    return None


def _start_a_server(error: PeltierError) -> str | None:
    if not is_unconnected(error):
        return None
    return "start a server with `peltier serve`, or set PELTIER_URL to the address of another"


def _get_the_scope(error: PeltierError) -> str | None:
    scope = re.search(r"needs the scope '(\w+)'", error.message)
    return scope and f"ask an administrator for a key with this scope: peltier keys create --scope {scope[1]}"


def _list_versions(error: PeltierError) -> str | None:
    adapter = re.search(r"adapter '([^']+)'", error.message)
    return adapter and f"see: peltier versions {adapter[1]}"


_STEPS: Mapping[type[PeltierError], Callable[[PeltierError], str | None]] = {
    ConnectionFailed: _start_a_server,
    Forbidden: _get_the_scope,
    AdapterNotFound: lambda _: "see: peltier list",
    VersionNotFound: _list_versions,
    BatchNotFound: lambda _: "see: peltier batches list",
    TrainingNotFound: lambda _: "see: peltier trainings list",
}


def complete_task(context: typer.Context, incomplete: str) -> list[str]:
    """Own adapters that begin with `incomplete`, or with the part of it after the last comma; none without a server."""
    before, comma, begun = incomplete.rpartition(",")
    url, api_key = (context.params.get(name) for name in ("url", "api_key"))
    try:
        with Client(url or DEFAULT_URL, api_key, timeout=_TIMEOUT_SECONDS, max_attempts=1) as client:
            found = [adapter.name for adapter in islice(client.adapters(begun), _MAX_NAMES)]
    except PeltierError:
        return []
    return [f"{before}{comma}{name}" for name in found if name.startswith(begun)]


def checked(check: Callable[[str], object]) -> Callable[[str | None], str | None]:
    """A callback that reports a value refused by `check` as wrong usage."""

    def callback(value: str | None) -> str | None:
        try:
            if value is not None:
                check(value)
        except InvalidInput as error:
            raise typer.BadParameter(str(error)) from error
        return value

    return callback


def task_argument(metavar: str, help_: str, check: Callable[[str], object] = TaskReference.parse) -> Any:
    """An argument that names a task, with shell completion."""
    return typer.Argument(metavar=metavar, help=help_, callback=checked(check), autocompletion=complete_task)


Url = Annotated[str, typer.Option(envvar="PELTIER_URL", help="Address of the server.", callback=checked(check_url))]
ApiKey = Annotated[
    str | None,
    typer.Option(envvar="PELTIER_API_KEY", help="API key.", callback=checked(check_api_key)),
]
TaskArgument = Annotated[str, task_argument("TASK", "name, name@3, name@alias or _backbone.")]
TenantFilter = Annotated[
    str | None, typer.Option("--tenant", help="Show only this tenant's.", callback=checked(check_name))
]
OwnAdapter = Annotated[str, task_argument("TASK", "The name of an adapter.", check_name)]


Document = BaseModel | Mapping[str, object]
ForPeople = str | Callable[[], object]
Result = tuple[Document, ForPeople]


def print_result(document: Document, for_people: ForPeople, *, json: bool) -> None:
    """With `json` print one JSON document on stdout; without it the sentence `for_people`, or what it prints."""
    if json:
        typer.echo(to_json(document, exclude_none=True, inf_nan_mode="null").decode())
    elif isinstance(for_people, str):
        typer.echo(for_people)
    else:
        for_people()


def url_option(url: str) -> str:
    """The option with the server's address for a command that an output names; empty for the default address."""
    return "" if url == DEFAULT_URL else f" --url {url}"


@contextmanager
def connect(url: str, api_key: str | None) -> Iterator[Client]:
    """A client for one command. Its errors name the next step."""
    with with_next_steps(api_key), Client(url, api_key) as client:
        yield client


_SERVER_OPTIONS = [
    Parameter("url", Parameter.KEYWORD_ONLY, default=DEFAULT_URL, annotation=Url),
    Parameter("api_key", Parameter.KEYWORD_ONLY, default=None, annotation=ApiKey),
    Parameter("json", Parameter.KEYWORD_ONLY, default=False, annotation=Json),
]


def of_server(ask: Callable[..., Result]) -> Callable[..., None]:
    """The command that prints what `ask` finds out with its first parameter, a `client`. It has the options of the
    server and `--json` in the place of that parameter."""

    @wraps(ask)
    def command(*, url: str, api_key: str | None, json: bool, **values: Any) -> None:
        with connect(url, api_key) as client:
            document, for_people = ask(client=client, **values)
        print_result(document, for_people, json=json)

    _, *own = inspect.signature(ask).parameters.values()
    set_parameters(command, [*own, *_SERVER_OPTIONS])
    return command
