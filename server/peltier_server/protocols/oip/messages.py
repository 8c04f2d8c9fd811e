"""Messages of the Open Inference Protocol, and the form of its errors."""

from typing import Annotated, Any, Literal

from peltier_client.errors import PeltierError
from peltier_client.protocol.predict import is_none
from peltier_client.protocol.wire import RequestModel, ResponseModel
from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from peltier_server.errors import ErrorShape

Datatype = Literal["BYTES", "FP32", "INT64"]
# The bounds are much more than any task has, and end the reading of a list or object of thousands early.
TensorParameters = Annotated[dict[str, StrictBool | StrictInt | StrictFloat | StrictStr], Field(max_length=64)]
Size = Annotated[StrictInt, Field(ge=0)]


class InputTensor(RequestModel):
    """A tensor of texts: `data` in row-major order, nested or flat, or `binary_data_size` bytes after the JSON."""

    name: StrictStr
    shape: Annotated[list[Size], Field(max_length=8)]
    datatype: StrictStr
    parameters: TensorParameters = Field(default_factory=dict)
    data: list[Any] | None = None


class RequestedOutput(RequestModel):
    """The name of an output, and with `binary_data` its form."""

    name: StrictStr
    parameters: TensorParameters = Field(default_factory=dict)


class InferRequest(RequestModel):
    """Texts for one task. Without `outputs` the answer has all outputs of the task.

    `parameters` are those of a prediction, and `binary_data_output`, the form of all outputs. KServe's client repeats
    the model of the path in `model_name`.
    """

    id: StrictStr | None = None
    model_name: StrictStr | None = None
    parameters: TensorParameters = Field(default_factory=dict)
    inputs: Annotated[list[InputTensor], Field(min_length=1, max_length=3)]
    outputs: Annotated[list[RequestedOutput], Field(max_length=64)] | None = None


class RepositoryIndexRequest(RequestModel):
    """With `ready` only the models that are ready."""

    ready: StrictBool = False


class LoadParameters(RequestModel):
    """A load has none: the device keeps the model."""


class LoadRequest(RequestModel):
    """A model to pin."""

    parameters: LoadParameters = Field(default_factory=LoadParameters)


class UnloadParameters(RequestModel):
    """No model has others that depend on it, so they stay loaded either way."""

    unload_dependents: StrictBool = False


class UnloadRequest(RequestModel):
    """A model to release."""

    parameters: UnloadParameters = Field(default_factory=UnloadParameters)


class ModelLoad(ResponseModel):
    """Whether the model is now kept in memory."""

    name: str
    load: bool


class OutputTensor(ResponseModel):
    """A tensor: `data` in row-major order, or `binary_data_size` bytes after the JSON."""

    name: str
    shape: list[int]
    datatype: Datatype
    parameters: Annotated[dict[str, Any] | None, Field(exclude_if=is_none)] = None
    data: Annotated[list[Any] | None, Field(exclude_if=is_none)] = None


class InferResponse(ResponseModel):
    """The outputs for all inputs. `parameters` has `truncated_inputs` if there are any."""

    model_name: str
    model_version: str
    id: Annotated[str | None, Field(exclude_if=is_none)] = None
    parameters: Annotated[dict[str, Any] | None, Field(exclude_if=is_none)] = None
    outputs: list[OutputTensor]


class ServerMetadata(ResponseModel):
    """The server, and the extensions of the protocol that it has."""

    name: str
    version: str
    extensions: list[str]


class ServerLive(ResponseModel):
    """The server is alive."""

    live: Literal[True] = True


class ServerReady(ResponseModel):
    """The server can predict."""

    ready: Literal[True] = True


class ModelReady(ResponseModel):
    """The model can predict."""

    name: str
    ready: Literal[True] = True


class TensorMetadata(ResponseModel):
    """A tensor of a model. A size of -1 is the number of inputs. `parameters` has the labels of scores."""

    name: str
    datatype: Datatype
    shape: list[int]
    parameters: Annotated[dict[str, Any] | None, Field(exclude_if=is_none)] = None


class ModelMetadata(ResponseModel):
    """A task with its versions and its tensors."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class IndexedModel(ResponseModel):
    """A version of an adapter, and why it is not ready, if it is not."""

    name: str
    version: str
    state: Literal["READY", "UNAVAILABLE"]
    reason: str


class OIPErrorBody(ResponseModel):
    """The body of every answer that is not a success."""

    error: str


def oip_error(error: PeltierError) -> OIPErrorBody:
    """The message, with all further reasons after it."""
    return OIPErrorBody(error="; ".join(dict.fromkeys([error.message, *error.details])))


# The protocol uses 400 where Peltier's own routes use 422.
OIP_ERRORS = ErrorShape(OIPErrorBody, oip_error, ("/v2",), ("/v2/",), {422: 400})
