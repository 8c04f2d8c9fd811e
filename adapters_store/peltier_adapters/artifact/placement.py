"""Checks the tensor table of an artifact, and finds the places of its tensors in memory."""

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from peltier_backbone.checkpoint.config import BackboneConfig

from peltier_adapters.artifact.header import MAX_SHARED, TensorTable
from peltier_adapters.artifact.weights import Layout, arrange
from peltier_adapters.spec.maps import Shapes
from peltier_adapters.spec.parts import Parts, tensor_shapes

_ENTRY_KEYS = frozenset({"dtype", "shape", "data_offsets"})


@dataclass(frozen=True, eq=False)
class Placement:
    """The tensors of a table in the order of the file: `spans` are their bytes in the memory of `layout`, as few as
    possible. `num_bytes` is the end of the last tensor, and `gap` says where two of them are not contiguous."""

    layout: Layout
    spans: Sequence[slice]
    num_bytes: int
    gap: str | None

    def problem(self, num_bytes: int) -> str | None:
        """Why the tensors do not fill the `num_bytes` after the header of a file; None if they do."""
        if self.gap is None and self.num_bytes != num_bytes:
            return f"the header describes {self.num_bytes} bytes of tensors; the file has {num_bytes}"
        return self.gap


def place_tensors(table: TensorTable) -> Placement | None:
    """The placement of the tensors of any adapter; None for a table whose entries have no valid shapes and offsets."""
    return _place_shared(table) if table.shared else _place(table)


@lru_cache(maxsize=MAX_SHARED)
def _place_shared(table: TensorTable) -> Placement | None:
    return _place(table)


def _place(table: TensorTable) -> Placement | None:
    entries = table.entries
    if table.problem or not all(_spans(entry.get("data_offsets"), entry["shape"]) for entry in entries.values()):
        return None
    ordered = sorted(entries, key=lambda name: (entries[name]["data_offsets"], name))
    layout = arrange({name: tuple(entry["shape"]) for name, entry in entries.items()})
    spans = _merge(map(layout.span, ordered))
    end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    return Placement(layout, spans, end, _find_gap((name, *entries[name]["data_offsets"]) for name in ordered))


def _merge(spans: Iterable[slice]) -> list[slice]:
    """The same bytes in the same order in as few spans as possible."""
    merged: list[slice] = []
    for span in spans:
        if merged and merged[-1].stop == span.start:
            merged[-1] = slice(merged[-1].start, span.stop)
        elif span.start < span.stop:
            merged.append(span)
    return merged


def _find_gap(ordered: Iterable[tuple[str, int, int]]) -> str | None:
    after = 0
    for name, begin, end in ordered:
        if begin != after:
            return f"tensor {name!r} begins at byte {begin}; the tensors before it end at byte {after}"
        after = end
    return None


def table_reasons(table: TensorTable, parts: Parts, config: BackboneConfig) -> Sequence[str]:
    """Why the table does not have exactly the tensors of `parts`; empty if it has."""
    return _shared_reasons(table, parts, config) if table.shared else _reasons(table, parts, config)


@lru_cache(maxsize=MAX_SHARED)
def _shared_reasons(table: TensorTable, parts: Parts, config: BackboneConfig) -> Sequence[str]:
    return _reasons(table, parts, config)


def _reasons(table: TensorTable, parts: Parts, config: BackboneConfig) -> Sequence[str]:
    return _differences(table.entries, tensor_shapes(parts, config))


def _differences(table: Mapping[str, Any], shapes: Shapes) -> list[str]:
    reasons = [f"tensor {name!r} is missing" for name in shapes if name not in table]
    reasons += [f"tensor {reprlib.repr(name)} belongs to no part" for name in table if name not in shapes]
    for name in shapes.keys() & table.keys():
        entry = table[name]
        if entry["shape"] != list(shapes[name]):
            found = reprlib.repr(entry["shape"])
            reasons.append(f"tensor {name!r} has shape {found}; its part requires {list(shapes[name])}")
        elif not _spans(entry.get("data_offsets"), entry["shape"]):
            found = reprlib.repr(entry.get("data_offsets"))
            reasons.append(f"tensor {name!r} has data_offsets {found}; its shape takes {4 * prod(shapes[name])} bytes")
        if entry.get("dtype") != "F32":
            reasons.append(f"tensor {name!r} has dtype {_shown(entry.get('dtype'))}; artifacts hold F32")
        reasons += _unknown_keys(name, entry)
    return sorted(reasons)


def _spans(offsets: object, shape: Sequence[int]) -> bool:
    """Whether these are the begin and the end of a float32 tensor of this shape."""
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(offset) is int for offset in offsets):
        return False
    return bool(offsets[1] - offsets[0] == 4 * prod(shape))


def _unknown_keys(name: str, entry: dict[str, Any]) -> list[str]:
    return [f"tensor {name!r} has an unknown key {reprlib.repr(key)}" for key in entry if key not in _ENTRY_KEYS]


def _shown(dtype: object) -> str:
    return dtype if isinstance(dtype, str) else reprlib.repr(dtype)
