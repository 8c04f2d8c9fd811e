"""Reads the texts of an inference request from its tensors, in JSON or in bytes after it."""

import math
import reprlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from fastapi import Request
from peltier_client.errors import BadRequest, InvalidInput
from peltier_client.protocol.predict import Input, Parameters
from pydantic import ValidationError

from peltier_server.protocols.oip.messages import InferRequest, InputTensor, TensorParameters

# The names of the texts of an input, in order.
TEXTS = ("text", "text_pair", "text_third")
# Of a prediction's parameters those that a tensor cannot follow: `top_k` makes rows of different labels.
_PARAMETERS = Parameters.model_fields.keys() - {"top_k", "return_gates", "precision"}
_LENGTH_BYTES = 4
# The header of a body that has bytes after its JSON.
LENGTH_HEADER = "inference-header-content-length"


def json_length(request: Request) -> int | None:
    """The bytes of the JSON at the start of the body; None if the body is only JSON."""
    value = request.headers.get(LENGTH_HEADER)
    if value is None:
        return None
    if not (value.isascii() and value.isdecimal() and len(value) < 12):
        raise BadRequest(f"{LENGTH_HEADER} is {value[:20]!r}: must be the number of bytes of the JSON in the body")
    return int(value)


def read_inputs(asked: InferRequest, names: Sequence[str], tail: memoryview, max_inputs: int) -> list[Input]:
    """One input per row of the tensors, which must have `names`, and at most `max_inputs` texts each. `tail` is what
    follows the JSON in the body."""
    tensors = {tensor.name: tensor for tensor in asked.inputs}
    if len(tensors) != len(asked.inputs):
        raise InvalidInput("two input tensors have the same name")
    if tensors.keys() != set(names):
        given, wanted = ", ".join(sorted(tensors)), ", ".join(names)
        raise InvalidInput(f"the input tensors are {given[:200]}: this task has {wanted}")
    for tensor in asked.inputs:
        _check_form(tensor, max_inputs)
    parts = dict(zip(tensors, _split(asked.inputs, tail), strict=True))
    columns = [_read_texts(tensors[name], parts[name]) for name in names]
    lengths = {name: len(column) for name, column in zip(names, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InvalidInput(f"the input tensors have different numbers of texts: {shown}")
    if not columns[0]:
        raise InvalidInput("the input tensors are empty: they must have at least one text")
    if len(columns) == 1:
        return list(columns[0])
    # Every task has one to three texts.
    return list(zip(*columns, strict=True))


def read_parameters(given: TensorParameters, num_labels: int | None) -> Parameters:
    """The parameters of a prediction, with the scores of all `num_labels`, if the answer has scores of labels."""
    values = {name: value for name, value in given.items() if name != "binary_data_output"}
    microseconds = values.pop("timeout", None)
    if microseconds is not None:
        if not isinstance(microseconds, int) or isinstance(microseconds, bool) or microseconds < 0:
            raise InvalidInput(f"parameter timeout is {reprlib.repr(microseconds)}: must be a number of microseconds")
        if microseconds:
            values["timeout_ms"] = math.ceil(microseconds / 1000)
    unknown = sorted(values.keys() - _PARAMETERS)
    if unknown:
        raise InvalidInput(
            f"parameter {unknown[0][:80]!r} is unknown here; known are binary_data_output, timeout, "
            f"{', '.join(sorted(_PARAMETERS))}"
        )
    try:
        return Parameters.model_validate({**values, "top_k": num_labels})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        shown = f"parameter {first['loc'][0]} is {reprlib.repr(first['input'])}"
        raise InvalidInput(f"{shown}: {first['msg'].lower()}") from None


def _split(tensors: Sequence[InputTensor], tail: memoryview) -> Iterator[memoryview | None]:
    """The bytes of each tensor; None if its data are in JSON."""
    start = 0
    for tensor in tensors:
        size = tensor.parameters.get("binary_data_size")
        if size is None:
            yield None
            continue
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(tail) - start:
            raise InvalidInput(
                f"input {tensor.name}: binary_data_size is {reprlib.repr(size)}, and {len(tail) - start} bytes follow "
                "in the body"
            )
        yield tail[start : start + size]
        start += size
    if start != len(tail):
        raise InvalidInput(f"the body has {len(tail) - start} bytes after its last tensor")


def _check_form(tensor: InputTensor, max_inputs: int) -> None:
    """Checks what a tensor says of itself before its texts are read: three bytes may be a text."""
    if tensor.datatype != "BYTES":
        raise InvalidInput(f"input {tensor.name}: its datatype is {tensor.datatype[:20]!r}: texts are BYTES")
    if not tensor.shape or tensor.shape[1:] not in ([], [1]):
        raise InvalidInput(f"input {tensor.name}: its shape is {tensor.shape}: the shape of n texts is [n] or [n, 1]")
    if tensor.shape[0] > max_inputs:
        raise InvalidInput(f"input {tensor.name} has {tensor.shape[0]} texts; at most {max_inputs} are allowed")


def _read_texts(tensor: InputTensor, binary: memoryview | None) -> list[str]:
    if (tensor.data is None) == (binary is None):
        raise InvalidInput(f"input {tensor.name}: must have either data or binary_data_size")
    elements = _flat(tensor.name, tensor.data or ()) if binary is None else _elements(tensor.name, binary)
    texts = list(islice(elements, tensor.shape[0] + 1))
    if len(texts) != tensor.shape[0]:
        found = "more" if len(texts) > tensor.shape[0] else len(texts)
        raise InvalidInput(
            f"input {tensor.name}: its shape is {tensor.shape}, and it has {found} texts: the shape of n texts is "
            "[n] or [n, 1]"
        )
    return texts


def _flat(name: str, data: Sequence[Any]) -> Iterator[str]:
    """The texts of a list of texts, or of a list of lists of one text."""
    for number, value in enumerate(data):
        text = value[0] if isinstance(value, list) and len(value) == 1 else value
        if not isinstance(text, str):
            raise InvalidInput(f"input {name}: element {number} must be a text")
        yield _checked(name, number, text)


def _elements(name: str, binary: memoryview) -> Iterator[str]:
    """The texts of a tensor in bytes: before each stands its length in four bytes, the lowest first."""
    start, number = 0, 0
    while start < len(binary):
        begin = start + _LENGTH_BYTES
        end = begin + int.from_bytes(binary[start:begin], "little")
        if end > len(binary):
            raise InvalidInput(f"input {name}: element {number} is longer than the tensor's bytes")
        try:
            yield str(binary[begin:end], "utf-8")
        except UnicodeDecodeError:
            raise InvalidInput(f"input {name}: element {number} is not UTF-8") from None
        start, number = end, number + 1


def _checked(name: str, number: int, text: str) -> str:
    """The text. JSON may name half of a surrogate pair, which is no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"input {name}: element {number} is not valid Unicode") from None
    return text
