"""Splits the header of a safetensors file into its metadata and its tensor table, and bounds its JSON before it is
parsed. Imports no torch.

Three bytes of JSON, `[],`, take 700 bytes in a parser, and each reported error takes 2,000. A hostile text of a few
megabytes would fill the memory of a server.

The metadata of an artifact differ between adapters, the table is the same for all adapters with the same parts. So a
table is parsed once for each text.
"""

import json
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

from peltier_adapters.errors import ArtifactError

# A table of all parts together has 4 KB.
_MAX_SHARED_CHARS = 8192
MAX_SHARED = 128
# In the order in which safetensors and `to_bytes` write a header.
_METADATA_FIRST = '{"__metadata__":'


def has_more_tokens(text: bytes, limit: int) -> bool:
    """Whether the text has more than `limit` strings, commas and opening brackets. It has no more values than these."""
    # Each token contains such a byte.
    if sum(map(text.count, (b'"', b",", b"[", b"{"))) <= limit:
        return False
    # Without escapes, quotes begin and end strings. An unterminated string extends to the end.
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    num_strings = (plain.count(b'"') + 1) // 2
    if num_strings > limit:
        return True
    between = b"".join(plain.split(b'"')[::2])
    return num_strings + sum(map(between.count, (b",", b"[", b"{"))) > limit


def doubled_name(pairs: Iterable[tuple[str, Any]]) -> str | None:
    """The first name that occurs twice in one JSON object, for an `object_pairs_hook`."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    return None


@dataclass(frozen=True, eq=False)
class TensorTable:
    """The entries of a header by the names of their tensors. Of a `shared` table there is one object for each text."""

    entries: Mapping[str, Any]
    shared: bool

    @cached_property
    def problem(self) -> str | None:
        """The first entry whose shape is not a list of sizes, as a sentence."""
        for name, entry in self.entries.items():
            shape = entry.get("shape") if isinstance(entry, dict) else None
            if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
                return f"tensor {reprlib.repr(name)} has shape {reprlib.repr(shape)}: not a list of sizes"
        return None


def split_header(text: str) -> tuple[object, TensorTable]:
    """The metadata, which may be anything, and the table. Raises ValueError or RecursionError for a text that is not
    JSON, and ArtifactError for a name that occurs twice."""
    if text.startswith(_METADATA_FIRST + "{"):
        metadata, end = _DECODER.raw_decode(text, len(_METADATA_FIRST))
        if text.startswith(',"', end):
            return metadata, _find_table(text[end + 1 :])
    header = _DECODER.decode(text)
    metadata = header.pop("__metadata__", None) if isinstance(header, dict) else None
    return metadata, TensorTable(header, shared=False)


def unique_names(what: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """One JSON object, for an `object_pairs_hook`. Refuses duplicate names, because readers may differ in which one
    they use."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ArtifactError([f"the {what} names {reprlib.repr(doubled_name(pairs))} twice"])
    return found


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=partial(unique_names, "header"), parse_constant=_refuse_constant)


def _find_table(text: str) -> TensorTable:
    return _shared_table(text) if len(text) <= _MAX_SHARED_CHARS else TensorTable(_parse(text), shared=False)


@lru_cache(maxsize=MAX_SHARED)
def _shared_table(text: str) -> TensorTable:
    return TensorTable(_parse(text), shared=True)


def _parse(text: str) -> Mapping[str, Any]:
    """The entries in a header's text after the metadata."""
    entries: Mapping[str, Any] = _DECODER.decode("{" + text)
    if "__metadata__" in entries:
        raise ArtifactError(["the header names '__metadata__' twice"])
    return entries
