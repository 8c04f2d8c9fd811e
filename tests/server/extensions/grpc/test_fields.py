"""The bound of the fields of a message over gRPC."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from peltier_server.extensions.grpc import open_inference_pb2 as proto
from peltier_server.extensions.grpc.fields import has_more_fields

KIND = proto.ModelInferRequest.DESCRIPTOR


def _num_fields(message: Any) -> int:
    """The fields of a message without numbers, with those of its parts."""
    return sum(
        1 + (_num_fields(one) if field.message_type else 0)
        for field, value in message.ListFields()
        for one in (value if field.is_repeated else [value])
    )


@given(
    st.lists(st.binary(max_size=3), max_size=5),
    st.lists(st.tuples(st.text(max_size=3), st.lists(st.binary(max_size=3), max_size=5)), max_size=3),
    st.lists(st.text(max_size=3), max_size=3),
)
def test_every_field_counts(raw: list[bytes], tensors: list[tuple[str, list[bytes]]], outputs: list[str]) -> None:
    message = proto.ModelInferRequest(model_name="film", raw_input_contents=raw)
    for name, texts in tensors:
        message.inputs.add(name=name).contents.bytes_contents.extend(texts)
    for name in outputs:
        message.outputs.add(name=name)
    data, count = message.SerializeToString(), _num_fields(message)
    assert has_more_fields(data, KIND, count - 1)
    assert not has_more_fields(data, KIND, count)


@given(st.binary(max_size=40))
def test_what_a_parser_reads_counts(data: bytes) -> None:
    try:
        message = proto.ModelInferRequest.FromString(data)
    except DecodeError:
        return
    fields = sum(len(value) if field.is_repeated else 1 for field, value in message.ListFields())
    assert not fields or has_more_fields(data, KIND, fields - 1)


def test_the_bytes_of_numbers_count() -> None:
    """A shape of a thousand sizes is one field of a thousand bytes."""
    message = proto.ModelInferRequest()
    message.inputs.add(shape=[1] * 1000)
    assert has_more_fields(message.SerializeToString(), KIND, 1000)
    assert not has_more_fields(message.SerializeToString(), KIND, 1002)


@pytest.mark.parametrize("data", [b"\xff" * 1_000_000, b"\x2a\xff\xff\xff\xff\x7f", b"\x2a", b"\x08", b"\x0b" * 100])
def test_malformed_bytes_end(data: bytes) -> None:
    """A number without end, a part longer than the message, a field without its value, and groups."""
    assert not has_more_fields(data, KIND, 200)
