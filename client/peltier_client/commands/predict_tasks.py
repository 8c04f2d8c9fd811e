"""`peltier predict` for several tasks on one text."""

from collections.abc import Mapping, Sequence

import typer
from pydantic import BaseModel

from peltier_client.commands.arguments import print_result
from peltier_client.commands.tables import print_task_answers
from peltier_client.errors import ErrorBody, PeltierError
from peltier_client.exchange.results import PredictionBody, Predictions
from peltier_client.protocol import TaskReference, TextTuple, group_prefix
from peltier_client.resources.predict import PredictOptions
from peltier_client.synchronous.client import Client


class TaskAnswers(BaseModel):
    """What `peltier predict A,B TEXT --json` prints."""

    tasks: list[str]
    results: list[PredictionBody | ErrorBody]


def split_tasks(task: str) -> list[str]:
    """The tasks and groups in the first word of the command. Raises `InvalidInput` for one that is neither."""
    tasks = task.split(",")
    for one in tasks:
        if group_prefix(one) is None:
            TaskReference.parse(one)
    return tasks


def names_several(task: str) -> bool:
    """Whether the first word of the command names several tasks or a group."""
    return "," in task or group_prefix(task) is not None


def predict_tasks(
    client: Client, task: str, inputs: Sequence[str] | Sequence[TextTuple], options: PredictOptions, *, json: bool
) -> None:
    """Print the answer of each task; the command fails if a task has an error instead."""
    if len(inputs) != 1:
        raise typer.BadParameter(f"several tasks answer one TEXT; {len(inputs)} were given")
    found = client.predict_tasks(split_tasks(task), inputs[0], **options)
    results = [one.body() if isinstance(one, PeltierError) else one.body for one in found.values()]
    print_result(TaskAnswers(tasks=list(found), results=results), lambda: print_task_answers(found), json=json)
    _fail_with(found)


def _fail_with(found: Mapping[str, Predictions | PeltierError]) -> None:
    errors = {task: one for task, one in found.items() if isinstance(one, PeltierError)}
    for task, error in errors.items():
        typer.echo(f"error: {task}: {error}", err=True)
    if errors:
        raise typer.Exit(1)
