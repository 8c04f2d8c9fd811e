"""Messages of the protocol's gRPC form as requests of its HTTP form, and answers back."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from peltier_client.errors import InvalidInput
from pydantic_core import to_json

from peltier_server.extensions.grpc import open_inference_pb2 as proto
from peltier_server.http.app_call import AppAnswer, AppCall
from peltier_server.protocols.oip.inputs import LENGTH_HEADER

_LONGEST_MICROSECONDS = 3_600_000_000


def infer_call(request: proto.ModelInferRequest, seconds_left: float | None) -> AppCall:
    """The request with all tensors in bytes after its JSON. The deadline of the call is a `timeout`, unless the request
    has a shorter one."""
    parameters = _values(request.parameters) | {"binary_data_output": True}
    if seconds_left is not None and 0 < (left := int(seconds_left * 1e6)) <= _LONGEST_MICROSECONDS:
        given = parameters.get("timeout")
        parameters["timeout"] = left if not given else min(left, given) if isinstance(given, int) else given
    pieces = list(_contents(request))
    body: dict[str, Any] = {"parameters": parameters}
    body["inputs"] = [
        {
            "name": tensor.name,
            "shape": list(tensor.shape),
            "datatype": tensor.datatype,
            "parameters": _values(tensor.parameters) | {"binary_data_size": len(piece)},
        }
        for tensor, piece in zip(request.inputs, pieces, strict=True)
    ]
    if request.id:
        body["id"] = request.id
    if request.outputs:
        # In this form all outputs are bytes.
        kept = [(one.name, _values(one.parameters)) for one in request.outputs]
        body["outputs"] = [{"name": name, "parameters": own | {"binary_data": True}} for name, own in kept]
    call = _posting(f"{_path(request.model_name, request.model_version)}/infer", body)
    call.headers[LENGTH_HEADER] = str(len(call.body))
    call.body += b"".join(pieces)
    return call


def read_infer(answer: AppAnswer) -> proto.ModelInferResponse:
    length = int(answer.headers.get(LENGTH_HEADER, len(answer.body)))
    body, tail = json.loads(answer.body[:length]), memoryview(answer.body)[length:]
    response = proto.ModelInferResponse(
        model_name=body["model_name"], model_version=body["model_version"], id=body.get("id", "")
    )
    for name, value in body.get("parameters", {}).items():
        response.parameters[name].int64_param = value
    start = 0
    for output in body["outputs"]:
        size = output["parameters"]["binary_data_size"]
        response.outputs.add(name=output["name"], datatype=output["datatype"], shape=output["shape"])
        response.raw_output_contents.append(bytes(tail[start : start + size]))
        start += size
    return response


def read_model_metadata(answer: AppAnswer) -> proto.ModelMetadataResponse:
    """The metadata of a model. Labels of outputs, which a tensor has no field for, are in `properties`."""
    body = json.loads(answer.body)
    outputs = body["outputs"]
    labels = {one["name"]: one["parameters"]["labels"] for one in outputs if one.get("parameters")}
    return proto.ModelMetadataResponse(
        name=body["name"],
        versions=body["versions"],
        platform=body["platform"],
        inputs=list(_tensors(body["inputs"])),
        outputs=list(_tensors(outputs)),
        properties={f"{name}.labels": json.dumps(found, ensure_ascii=False) for name, found in labels.items()},
    )


def read_index(answer: AppAnswer) -> proto.RepositoryIndexResponse:
    models = [proto.RepositoryIndexResponse.ModelIndex(**one) for one in json.loads(answer.body)]
    return proto.RepositoryIndexResponse(models=models)


def read_error(answer: AppAnswer) -> str:
    """The sentence of an answer that is not a success; empty where the caller has disconnected."""
    return str(json.loads(answer.body)["error"]) if answer.body else ""


def _contents(request: proto.ModelInferRequest) -> Iterator[bytes]:
    """The bytes of each input tensor, from the raw contents or its own contents."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise InvalidInput(f"raw_input_contents has {len(raw)} tensors, and inputs has {len(request.inputs)}")
    for number, tensor in enumerate(request.inputs):
        if raw and tensor.HasField("contents"):
            raise InvalidInput(f"input {tensor.name[:80]}: must have either contents or raw_input_contents")
        yield raw[number] if raw else b"".join(_elements(tensor.contents.bytes_contents))


def _elements(texts: Sequence[bytes]) -> Iterator[bytes]:
    for text in texts:
        yield len(text).to_bytes(4, "little") + text


def _tensors(found: Sequence[Mapping[str, Any]]) -> Iterator[proto.ModelMetadataResponse.TensorMetadata]:
    for one in found:
        yield proto.ModelMetadataResponse.TensorMetadata(name=one["name"], datatype=one["datatype"], shape=one["shape"])


def _values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The values of parameters, each of which is one of several fields."""
    chosen = ((name, one, one.WhichOneof("parameter_choice")) for name, one in parameters.items())
    return {name: getattr(one, field) for name, one, field in chosen if field is not None}


def _repository(parameters: Mapping[str, Any]) -> dict[str, Any]:
    values = _values(parameters)
    for name, value in values.items():
        if isinstance(value, bytes):
            raise InvalidInput(f"parameter {name[:80]!r} has bytes: models are published by POST /v1/adapters")
    return {"parameters": values}


def _posting(path: str, body: Mapping[str, Any]) -> AppCall:
    return AppCall("POST", path, to_json(body), {"content-type": "application/json"})


def _path(model: str, version: str) -> str:
    path = f"/v2/models/{_segment(model)}"
    return f"{path}/versions/{_segment(version)}" if version else path


def _segment(name: str) -> str:
    """A name as one segment of a path."""
    if not name or "/" in name:
        raise InvalidInput(f"{name[:80]!r} is no name of a model or a version: it is empty or has a slash")
    return name


def _repository_call(request: Any, action: str) -> AppCall:
    return _posting(f"/v2/repository/models/{_segment(request.model_name)}/{action}", _repository(request.parameters))


def _is_success(answer: AppAnswer) -> bool:
    return answer.status < HTTPStatus.BAD_REQUEST


# Calls that say whether something is ready. That it is not is no error there.
_NOT_READY = frozenset({HTTPStatus.FAILED_DEPENDENCY, HTTPStatus.SERVICE_UNAVAILABLE})


@dataclass(frozen=True)
class Method:
    """A call of the protocol: the type of its message, the request that `make` makes of the message and of the seconds
    until the caller's deadline, the message that `read` makes of an answer, and which statuses are no errors. A call
    that `is_open` needs no key, and its message says nothing."""

    kind: Any
    make: Callable[[Any, float | None], AppCall]
    read: Callable[[AppAnswer], Any]
    accepted: frozenset[int] = frozenset()
    is_open: bool = False


METHODS: Mapping[str, Method] = {
    "ServerLive": Method(
        proto.ServerLiveRequest,
        lambda *_: AppCall("GET", "/v2/health/live"),
        lambda _: proto.ServerLiveResponse(live=True),
        is_open=True,
    ),
    "ServerReady": Method(
        proto.ServerReadyRequest,
        lambda *_: AppCall("GET", "/v2/health/ready"),
        lambda answer: proto.ServerReadyResponse(ready=_is_success(answer)),
        _NOT_READY,
        is_open=True,
    ),
    "ServerMetadata": Method(
        proto.ServerMetadataRequest,
        lambda *_: AppCall("GET", "/v2"),
        lambda answer: proto.ServerMetadataResponse(**json.loads(answer.body)),
    ),
    "ModelReady": Method(
        proto.ModelReadyRequest,
        lambda request, _: AppCall("GET", f"{_path(request.name, request.version)}/ready"),
        lambda answer: proto.ModelReadyResponse(ready=_is_success(answer)),
        _NOT_READY,
    ),
    "ModelMetadata": Method(
        proto.ModelMetadataRequest,
        lambda request, _: AppCall("GET", _path(request.name, request.version)),
        read_model_metadata,
    ),
    "ModelInfer": Method(proto.ModelInferRequest, infer_call, read_infer),
    "RepositoryIndex": Method(
        proto.RepositoryIndexRequest,
        lambda request, _: _posting("/v2/repository/index", {"ready": request.ready}),
        read_index,
    ),
    "RepositoryModelLoad": Method(
        proto.RepositoryModelLoadRequest,
        lambda request, _: _repository_call(request, "load"),
        lambda _: proto.RepositoryModelLoadResponse(),
    ),
    "RepositoryModelUnload": Method(
        proto.RepositoryModelUnloadRequest,
        lambda request, _: _repository_call(request, "unload"),
        lambda _: proto.RepositoryModelUnloadResponse(),
    ),
}
