"""The two routes that SageMaker calls in a container.

SageMaker passes no `Authorization` on: the endpoint authenticates its callers, and the container serves without keys.
"""

import re

from fastapi import Request, Response
from peltier_client.errors import Draining, InvalidInput, NotReady
from peltier_client.protocol.operations import ReadyResponse
from peltier_client.protocol.predict import PredictRequest, PredictResponse

from peltier_server.errors import TASK_ERRORS, describe_errors, scoped_errors
from peltier_server.http.application import AnyTime, get_context
from peltier_server.http.scoped_route import open_router, scoped_router
from peltier_server.routes.predict import predict

# SageMaker passes it on from the parameter CustomAttributes of InvokeEndpoint.
_ATTRIBUTES = "x-amzn-sagemaker-custom-attributes"
_TASK = re.compile(r"(?:^|,)\s*task=([^,\s]+)")

router = scoped_router("predict", "sagemaker")
probes = open_router(tags=["sagemaker"])


@probes.get("/ping", responses=describe_errors(NotReady, Draining))
async def ping(lifecycle: AnyTime) -> ReadyResponse:
    """Ready to predict; 503 otherwise."""
    lifecycle.require_ready()
    return ReadyResponse()


@router.post("/invocations", response_model=PredictResponse, responses=scoped_errors(*TASK_ERRORS))
async def invoke(body: PredictRequest, request: Request) -> Response:
    """Answer inputs with the task that the header `x-amzn-sagemaker-custom-attributes` names as `task=NAME`."""
    found = _TASK.search(get_context(request).headers.get(_ATTRIBUTES, ""))
    if found is None:
        raise InvalidInput(f"the header {_ATTRIBUTES} names no task: CustomAttributes must have task=NAME")
    return await predict(found[1], body, request)
