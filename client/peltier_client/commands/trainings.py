"""`peltier trainings`: the trainings on a server."""

from typing import Annotated

import typer

from peltier_client.commands.arguments import ApiKey, Json, Url, connect, print_result, url_option
from peltier_client.commands.training_lines import follow, print_training, print_trainings
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.protocol.trainings import Training, TrainingStatus
from peltier_client.resources.trainings import succeeded

trainings = typer.Typer(help="List, watch, pause, resume, cancel and delete trainings.", no_args_is_help=True)


IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of the training, trn_….")]
StatusOption = Annotated[TrainingStatus | None, typer.Option("--status", help="Only those with this status.")]


@trainings.command("list")
def list_trainings(
    status: StatusOption = None, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False
) -> None:
    """List the trainings, newest first."""
    with connect(url, api_key) as client:
        found = list(client.trainings.list(status))
    none = "no trainings; begin one with: peltier train --server URL --task NAME --train F --validation F"
    print_result({"trainings": found}, (lambda: print_trainings(found)) if found else none, json=json)


@trainings.command("show")
def show_training(training_id: IdArgument, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Show one training: its status, progress, metrics and cost."""
    with connect(url, api_key) as client:
        training = client.trainings.get(training_id)
    print_result(training, lambda: print_training(training), json=json)


@trainings.command("watch")
def watch(training_id: IdArgument, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Print what happens to a training until it has ended. Ctrl-C leaves it running."""
    with connect(url, api_key) as client:
        training = succeeded(follow(client, training_id, url_option(url)))
    print_result(training, lambda: print_training(training), json=json)


@trainings.command("pause")
def pause(training_id: IdArgument, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Pause a training; a running one stops when its worker learns of it."""
    with connect(url, api_key) as client:
        training = client.trainings.pause(training_id)
    print_result(training, _told(training, "paused"), json=json)


@trainings.command("resume")
def resume(training_id: IdArgument, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Queue a paused or failed training again, from its last checkpoint."""
    with connect(url, api_key) as client:
        training = client.trainings.resume(training_id)
    print_result(training, _told(training, "resumed"), json=json)


@trainings.command("cancel")
def cancel(training_id: IdArgument, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Cancel a training; nothing is published."""
    with connect(url, api_key) as client:
        training = client.trainings.cancel(training_id)
    print_result(training, _told(training, "cancelled"), json=json)


@trainings.command("delete")
def delete(training_id: IdArgument, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Delete a training that has ended, with its events. The adapter that it published stays."""
    with connect(url, api_key) as client:
        client.trainings.delete(training_id)
    print_result({"deleted": training_id}, f"deleted {training_id}", json=json)


def _told(training: Training, done: str) -> str:
    if training.wish is not None:
        return f"{training.id} is {training.status}; it is {done} when its worker learns of it"
    return f"{training.id} is {training.status}"
