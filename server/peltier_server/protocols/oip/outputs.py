"""The output tensors of a task: their description, and the values of predictions."""

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from peltier_adapters.spec.tasks import TaskSpec, TaskType
from peltier_client.errors import InvalidInput
from peltier_client.protocol.predict import Parameters, TextPrediction
from pydantic_core import to_json

from peltier_server.catalog.published import Entry
from peltier_server.inference.prediction import OnePrediction
from peltier_server.protocols.oip.messages import Datatype, InferRequest, OutputTensor, RequestedOutput, TensorMetadata

_DEFAULTS = Parameters()
_TYPES: dict[str, np.dtype[Any]] = {"FP32": np.dtype("<f4"), "INT64": np.dtype("<i8")}


@dataclass(frozen=True)
class Output:
    """An output tensor of a task. `read` gives its value of one prediction: one value, or a list of `width` values."""

    name: str
    datatype: Datatype
    read: Callable[[dict[str, Any]], Any]
    width: int | None = None
    labels: Sequence[str] = ()

    @property
    def metadata(self) -> TensorMetadata:
        """Its description, for any number of inputs."""
        parameters = {"labels": list(self.labels)} if self.labels else None
        return TensorMetadata(name=self.name, datatype=self.datatype, shape=self.shape(-1), parameters=parameters)

    def shape(self, num_rows: int) -> list[int]:
        """Its shape for this number of inputs."""
        return [num_rows] if self.width is None else [num_rows, self.width]


# The field of a prediction that is a list of any length, by the type of the task.
_LISTS: Mapping[TaskType, str] = {
    "token-classification": "entities",
    "sparse-embedding": "terms",
    "multi-vector-embedding": "vectors",
}


def generates(task: TaskSpec, answer: object) -> bool:
    """Whether the answers are generated texts, if the parameter `answer` has this value."""
    return task.decoding is not None and (answer or task.decoding.answer) == "generate"


def outputs_of(entry: Entry, parameters: Parameters = _DEFAULTS) -> list[Output]:
    """The outputs of a task for a prediction with these parameters."""
    task = entry.task
    if generates(task, parameters.answer):
        return [_field("text", "BYTES"), _field("score", "FP32"), _field("finish_reason", "BYTES")]
    match task.type:
        case "classification":
            return [_field("label", "BYTES"), _field("score", "FP32"), _scores(task)]
        case "multilabel":
            return [_json("labels"), _scores(task)]
        case "regression":
            return [_field("value", "FP32")]
        case "ranking":
            return [_field("score", "FP32")]
        case "embedding":
            width = parameters.dimensions or entry.num_dimensions
            return [Output("embedding", "FP32", lambda found: found["embedding"], width)]
        case "span":
            return [
                _field("answer", "BYTES"),
                _field("start", "INT64"),
                _field("end", "INT64"),
                _field("score", "FP32"),
            ]
        case "token-classification" | "sparse-embedding" | "multi-vector-embedding":
            return [_json(_LISTS[task.type])]
        case "text2text":
            raise AssertionError("its texts are generated")


def choose_outputs(outputs: Sequence[Output], asked: InferRequest) -> list[tuple[Output, bool]]:
    """The outputs that `asked` names, or all, each with whether it is sent in bytes after the JSON."""
    binary = asked.parameters.get("binary_data_output", False)
    _require_bool("binary_data_output", binary)
    if asked.outputs is None:
        return [(output, bool(binary)) for output in outputs]
    known, chosen = {output.name: output for output in outputs}, dict[str, tuple[Output, bool]]()
    for one in asked.outputs:
        output = _known(known, one)
        if one.name in chosen:
            raise InvalidInput(f"output {one.name!r} is named twice: each output can be named once")
        chosen[one.name] = output, _is_binary(one, default=bool(binary))
    return list(chosen.values())


class InferAnswer:
    """The tensors of `chosen` outputs for predictions, and the body of the answer in pieces.

    If `is_binary`, the tail is written first: the JSON has the bytes that each tensor took there.
    """

    def __init__(
        self, chosen: Sequence[tuple[Output, bool]], predictions: Sequence[OnePrediction], head: dict[str, Any]
    ) -> None:
        """`head` has the fields of the answer except its outputs."""
        self._chosen = chosen
        self._rows = [one.model_dump() if isinstance(one, TextPrediction) else one for one in predictions]
        self._head = head
        # Of each tensor in the tail.
        self._num_bytes = [0] * len(chosen)

    @property
    def is_binary(self) -> bool:
        """Whether bytes follow the JSON."""
        return any(binary for _, binary in self._chosen)

    def json(self) -> Iterator[bytes]:
        """The JSON of an `InferResponse`."""
        yield to_json(self._head).removesuffix(b"}") + b',"outputs":['
        for number, (output, binary) in enumerate(self._chosen):
            tensor = OutputTensor(name=output.name, datatype=output.datatype, shape=output.shape(len(self._rows)))
            before = b"," if number else b""
            if binary:
                size = {"binary_data_size": self._num_bytes[number]}
                yield before + to_json(tensor.model_copy(update={"parameters": size}))
            else:
                yield before + to_json(tensor).removesuffix(b"}") + b',"data":['
                yield from self._values(output)
                yield b"]}"
        yield b"]}"

    def tail(self) -> Iterator[bytes]:
        """The bytes after the JSON."""
        for number, (output, binary) in enumerate(self._chosen):
            for row in self._rows if binary else ():
                piece = _to_bytes(output, output.read(row))
                self._num_bytes[number] += len(piece)
                yield piece

    def _values(self, output: Output) -> Iterator[bytes]:
        before = b""
        for row in self._rows:
            value = output.read(row)
            # The values of a row without their brackets: `data` is flat.
            yield before + (to_json(value) if output.width is None else to_json(value)[1:-1])
            before = b","


def _to_bytes(output: Output, value: Any) -> bytes:
    if output.datatype == "BYTES":
        text = value if isinstance(value, bytes) else str(value).encode()
        return len(text).to_bytes(4, "little") + text
    return np.asarray(value, _TYPES[output.datatype]).tobytes()


def _field(name: str, datatype: Datatype) -> Output:
    return Output(name, datatype, lambda found: found[name])


def _json(name: str) -> Output:
    """A list, whose length differs between rows, as a text in JSON."""
    return Output(name, "BYTES", lambda found: to_json(found[name]))


def _scores(task: TaskSpec) -> Output:
    labels = task.labels

    def read(found: dict[str, Any]) -> list[float]:
        scores = found["scores"]
        return [scores[label] for label in labels]

    return Output("scores", "FP32", read, len(labels), labels)


def _known(outputs: dict[str, Output], asked: RequestedOutput) -> Output:
    if "classification" in asked.parameters:
        raise InvalidInput(f"output {asked.name[:80]}: classification is not served; `label` and `score` are the best")
    if asked.name not in outputs:
        raise InvalidInput(f"output {asked.name[:80]!r} does not exist: this task has {', '.join(outputs)}")
    return outputs[asked.name]


def _is_binary(asked: RequestedOutput, *, default: bool) -> bool:
    value = asked.parameters.get("binary_data", default)
    _require_bool(f"output {asked.name[:80]}: binary_data", value)
    return bool(value)


def _require_bool(what: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidInput(f"{what} is {reprlib.repr(value)}: must be true or false")
