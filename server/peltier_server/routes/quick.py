"""The route that is asked most: a body and a task, without what the framework does for any signature."""

from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from peltier_client.protocol import PredictRequest

from peltier_server.routes.bodies import Handler, counted
from peltier_server.routes.closed import Closed

JSON = "application/json"


class Quick(Closed):
    """A closed route whose endpoint takes `task`, `body` and `request`, and answers with a `Response`.

    To solve an endpoint's dependencies takes the framework as long as the answer itself, without the model. So a plain
    JSON body that is right goes straight to the endpoint. Whatever is not goes the framework's way: its errors are
    worded in one place.
    """

    def get_route_handler(self) -> Handler:
        """The quick way before the framework's, both over a body that is counted first."""
        endpoint, usual = self.endpoint, APIRoute.get_route_handler(self)

        async def handle(request: Request) -> Response:
            try:
                await request.body()
            except Exception as error:
                return await usual(Request(request.scope, _failing(error)))
            body = await _read(request)
            if body is None:
                return await usual(request)
            response: Response = await endpoint(request.path_params["task"], body, request)
            return response

        return counted(handle)


async def _read(request: Request) -> PredictRequest | None:
    if request.headers.get("content-type") != JSON:
        return None
    try:
        return PredictRequest.model_validate(await request.json())
    except (ValueError, RecursionError):
        return None


def _failing(error: Exception) -> Any:
    async def receive() -> Any:
        raise error

    return receive
