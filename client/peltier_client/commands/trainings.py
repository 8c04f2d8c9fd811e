"""`peltier trainings`: the trainings on a server."""

from typing import Annotated

import typer

from peltier_client.commands.arguments import ApiKey, Json, Result, Url, connect, print_result, url_option
from peltier_client.commands.training_lines import follow, print_training, print_trainings
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.protocol.trainings import Training, TrainingStatus
from peltier_client.resources.trainings import succeeded
from peltier_client.synchronous import Client

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of the training, trn_….")]
StatusOption = Annotated[TrainingStatus | None, typer.Option("--status", help="Only those with this status.")]


def list_trainings(client: Client, status: StatusOption = None) -> Result:
    """List the trainings, newest first."""
    found = list(client.trainings.list(status))
    none = "no trainings; begin one with: peltier train --server URL --task NAME --train F --validation F"
    return {"trainings": found}, (lambda: print_trainings(found)) if found else none


def show_training(client: Client, training_id: IdArgument) -> Result:
    """Show one training: its status, progress, metrics and cost."""
    training = client.trainings.get(training_id)
    return training, lambda: print_training(training)


def watch(training_id: IdArgument, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Print what happens to a training until it has ended. Ctrl-C leaves it running."""
    with connect(url, api_key) as client:
        training = succeeded(follow(client, training_id, url_option(url)))
    print_result(training, lambda: print_training(training), json=json)


def pause(client: Client, training_id: IdArgument) -> Result:
    """Pause a training; a running one stops when its worker learns of it."""
    return _told(client.trainings.pause(training_id), "paused")


def resume(client: Client, training_id: IdArgument) -> Result:
    """Queue a paused or failed training again, from its last checkpoint."""
    return _told(client.trainings.resume(training_id), "resumed")


def cancel(client: Client, training_id: IdArgument) -> Result:
    """Cancel a training; nothing is published."""
    return _told(client.trainings.cancel(training_id), "cancelled")


def delete(client: Client, training_id: IdArgument) -> Result:
    """Delete a training that has ended, with its events. The adapter that it published stays."""
    client.trainings.delete(training_id)
    return {"deleted": training_id}, f"deleted {training_id}"


def _told(training: Training, done: str) -> Result:
    later = f"; it is {done} when its worker learns of it" if training.wish is not None else ""
    return training, f"{training.id} is {training.status}{later}"
