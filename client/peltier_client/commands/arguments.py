"""Arguments and options that several commands share, and how commands print their result."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from pydantic import BaseModel

from peltier_client.commands.next_steps import with_next_steps
from peltier_client.commands.task_names import complete_task
from peltier_client.errors import InvalidInput
from peltier_client.exchange.connection import check_api_key, check_url
from peltier_client.protocol import TaskReference, check_name
from peltier_client.synchronous.client import Client


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


Url = Annotated[str, typer.Option(envvar="PELTIER_URL", help="Address of the server.", callback=checked(check_url))]
ApiKey = Annotated[
    str | None,
    typer.Option(envvar="PELTIER_API_KEY", help="API key.", callback=checked(check_api_key)),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
TaskArgument = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="name, name@3, name@alias or _backbone.",
        callback=checked(TaskReference.parse),
        autocompletion=complete_task,
    ),
]
TextColumns = Annotated[
    list[str] | None,
    typer.Option("--text-column", help="A text column; twice for a pair, three times on a T5. Default: text."),
]
BatchSize = Annotated[int, typer.Option(min=1, help="Maximum rows per request.")]
Concurrency = Annotated[int, typer.Option(min=1, max=64, help="Maximum concurrent requests.")]
TenantFilter = Annotated[
    str | None, typer.Option("--tenant", help="Show only this tenant's.", callback=checked(check_name))
]
OwnAdapter = Annotated[
    str,
    typer.Argument(
        metavar="TASK", help="The name of an adapter.", callback=checked(check_name), autocompletion=complete_task
    ),
]


DEFAULT_BATCH_SIZE = 64
DEFAULT_CONCURRENCY = 4


def print_result(document: BaseModel, for_people: str | Callable[[], object], *, json: bool) -> None:
    """With `json` print one JSON document on stdout; without it the sentence `for_people`, or what it prints."""
    if json:
        typer.echo(document.model_dump_json(exclude_none=True))
    elif isinstance(for_people, str):
        typer.echo(for_people)
    else:
        for_people()


@contextmanager
def connect(url: str, api_key: str | None) -> Iterator[Client]:
    """A client for one command. Its errors name the next step."""
    with with_next_steps(api_key), Client(url, api_key) as client:
        yield client
