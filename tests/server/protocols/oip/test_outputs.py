"""The body of an answer of the Open Inference Protocol."""

from typing import Any

import pytest
from peltier_client.errors import InvalidInput
from peltier_server.extensions.grpc.messages import read_infer
from peltier_server.http.app_call import AppAnswer
from peltier_server.protocols.oip import outputs
from peltier_server.protocols.oip.inputs import LENGTH_HEADER
from peltier_server.protocols.oip.messages import InferRequest
from peltier_server.protocols.oip.outputs import InferAnswer, Output, choose_outputs

VECTORS = outputs._json("vectors")
EMBEDDING = Output("embedding", "FP32", lambda found: found["embedding"], 2)
ROWS: list[dict[str, Any]] = [
    {"vectors": [[0.5, -1.0]], "embedding": [1.0, -2.0], "label": "é", "start": 3},
    {"vectors": [[1.0, 0.0], [0.0, 1.0]], "embedding": [0.0, 0.5], "label": "b", "start": -1},
]
CHOSEN = [
    (VECTORS, True),
    (EMBEDDING, True),
    (outputs._field("label", "BYTES"), True),
    (outputs._field("start", "INT64"), True),
    (VECTORS, False),
    (EMBEDDING, False),
]
TAIL = (
    b"\x0c\x00\x00\x00[[0.5,-1.0]]\x15\x00\x00\x00[[1.0,0.0],[0.0,1.0]]"
    b"\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x00\x00\x00\x00\x00\x00\x3f"
    b"\x02\x00\x00\x00\xc3\xa9\x01\x00\x00\x00b"
    b"\x03\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"
)
JSON = (
    b'{"model_name":"m","model_version":"1","outputs":['
    b'{"name":"vectors","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":41}},'
    b'{"name":"embedding","shape":[2,2],"datatype":"FP32","parameters":{"binary_data_size":16}},'
    b'{"name":"label","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":11}},'
    b'{"name":"start","shape":[2],"datatype":"INT64","parameters":{"binary_data_size":16}},'
    b'{"name":"vectors","shape":[2],"datatype":"BYTES","data":["[[0.5,-1.0]]","[[1.0,0.0],[0.0,1.0]]"]},'
    b'{"name":"embedding","shape":[2,2],"datatype":"FP32","data":[1.0,-2.0,0.0,0.5]}]}'
)


def written(chosen: list[tuple[Output, bool]]) -> tuple[bytes, bytes]:
    answer = InferAnswer(chosen, ROWS, {"model_name": "m", "model_version": "1"})
    tail = b"".join(answer.tail())
    return b"".join(answer.json()), tail


def test_the_bytes_of_every_type() -> None:
    assert written(CHOSEN) == (JSON, TAIL)


def test_an_output_is_named_once() -> None:
    """A request of 160 KB could name one 8,000 times, and its answer had 800 MB."""
    known = [outputs._field("label", "BYTES"), outputs._field("score", "FP32")]
    asked = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES"}], "outputs": [{"name": "label"}] * 2}
    with pytest.raises(InvalidInput, match="output 'label' is named twice: each output can be named once"):
        choose_outputs(known, InferRequest.model_validate(asked))


def test_a_value_is_serialised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors may be most of the largest answer."""
    seen: list[object] = []
    serialise = outputs.to_json
    monkeypatch.setattr(outputs, "to_json", lambda value: seen.append(value) or serialise(value))
    written([(VECTORS, True)])
    assert [value for value in seen if isinstance(value, list)] == [row["vectors"] for row in ROWS]


def test_a_message_has_the_bytes_of_each_tensor() -> None:
    head, tail = written(CHOSEN[:4])
    message = read_infer(AppAnswer(200, {LENGTH_HEADER: str(len(head))}, head + tail))
    assert [one.name for one in message.outputs] == ["vectors", "embedding", "label", "start"]
    assert [len(one) for one in message.raw_output_contents] == [41, 16, 11, 16]
    assert b"".join(message.raw_output_contents) == TAIL
