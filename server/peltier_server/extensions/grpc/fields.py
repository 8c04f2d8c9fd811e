"""Bounds the fields of a message before it is parsed: two bytes are a field, which takes a hundred bytes of memory."""

from google.protobuf.descriptor import Descriptor, FieldDescriptor

# The forms of values: a number, bytes after their length, and numbers of a fixed length.
_VARINT, _LENGTH = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}
_MAX_VARINT_BYTES = 10
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def has_more_fields(data: bytes, kind: Descriptor, limit: int) -> bool:
    """Whether a message of this kind has more than `limit` fields, with those of the messages in it and the bytes of
    lists of numbers. Of a part that is malformed those count that a parser reads before it stops."""
    parts, count = [(0, len(data), kind)], 0
    while parts and count <= limit:
        at, end, kind = parts.pop()
        try:
            while at < end and count <= limit:
                count += 1
                tag, at = _varint(data, at)
                wire = tag & 7
                if wire == _VARINT:
                    _, at = _varint(data, at)
                elif wire == _LENGTH:
                    size, at = _varint(data, at)
                    field = kind.fields_by_number.get(tag >> 3)
                    if field is not None and field.message_type is not None:
                        parts.append((at, min(at + size, end), field.message_type))
                    elif field is not None and field.type not in _TEXTS:
                        count += size
                    at += size
                else:
                    at += _FIXED_BYTES.get(wire, 0)
        except IndexError:
            continue
    return count > limit


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends. Raises IndexError if the data end before it, or if it is too long."""
    value = 0
    for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError
