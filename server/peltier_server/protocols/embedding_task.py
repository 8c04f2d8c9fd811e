"""The task that an embeddings API names."""

from fastapi import Request
from peltier_client.errors import InvalidInput

from peltier_server.http.application import resolve
from peltier_server.inference.prediction_request import ResolvedTask
from peltier_server.service import Service


def resolve_embedding(request: Request, service: Service, model: str) -> ResolvedTask:
    """The version that `model` names. Raises `InvalidInput` if it embeds no texts."""
    target = resolve(request, service, model)
    kind = target.entry.task.type
    if kind != "embedding":
        raise InvalidInput(
            f"model {model!r} is a {kind} task, which embeds no texts; its answers are at /v1/tasks/{model}/predict"
        )
    return target
