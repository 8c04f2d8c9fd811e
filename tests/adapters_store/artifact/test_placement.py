"""The places of tensors in memory, by the table alone."""

import json
from collections.abc import Callable

import pytest
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.artifact.header import TensorTable, split_header
from peltier_adapters.artifact.placement import place_tensors, table_reasons
from peltier_adapters.artifact.weights import layout_of
from peltier_adapters.presets.presets import presets_for
from peltier_backbone.backbone import Backbone

from tests.support.artifacts import fitting


def _table(**entries: object) -> TensorTable:
    return split_header(json.dumps({"__metadata__": {}, **entries}, separators=(",", ":")))[1]


def _entry(begin: int, *shape: int) -> dict[str, object]:
    size = 4
    for one in shape:
        size *= one
    return {"shape": list(shape), "dtype": "F32", "data_offsets": [begin, begin + size]}


def test_neighbours_in_file_and_memory_are_one_span() -> None:
    """Tensors without a gap between them are read at once; the head is last in memory."""
    table = _table(a=_entry(0, 16), b=_entry(64, 4, 8), c=_entry(192, 3), head=_entry(204, 5))
    placement = place_tensors(table)
    assert placement is not None
    assert placement.spans == [slice(0, 204), slice(256, 276)]
    assert placement.problem(224) is None
    assert placement.problem(228) == "the header describes 224 bytes of tensors; the file has 228"


@pytest.mark.parametrize("begin", [60, 68])
def test_tensors_that_overlap_or_leave_a_hole_are_told(begin: int) -> None:
    """Every byte of a file belongs to exactly one tensor."""
    placement = place_tensors(_table(a=_entry(0, 16), b=_entry(begin, 8)))
    assert placement is not None
    assert placement.problem(begin + 32) == (f"tensor 'b' begins at byte {begin}; the tensors before it end at byte 64")


@pytest.mark.parametrize(
    "change", [{"shape": 3}, {"data_offsets": [0, 8]}, {"data_offsets": [0.0, 4.0]}, {"shape": [-1]}]
)
def test_what_cannot_be_placed_has_no_places(change: dict[str, object]) -> None:
    assert place_tensors(_table(a=_entry(0, 1) | change)) is None


def test_a_table_is_placed_as_its_parts_are(backbone: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """For every preset the layout of the table equals that of the parts, and begins with that of the body."""
    for preset in presets_for(backbone.config):
        artifact = read_artifact(
            make_artifact(backbone, preset.name, overrides=fitting(preset.name, backbone.config)), backbone
        )
        parts = artifact.manifest.parts
        whole, body = (
            layout_of(one, backbone.config) for one in (parts, parts[: -1 if parts[-1].kind == "head" else 8])
        )
        assert [(name, artifact.tensors[name].storage_offset()) for name in artifact.tensors] == [
            (name, whole.block(name).start) for name in whole
        ]
        assert all(body.block(name) == whole.block(name) for name in body)
        assert max(body.block(name).stop for name in body) == body.length


def test_a_table_of_other_parts_has_reasons(bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    ours, theirs = (read_artifact(make_artifact(bert, preset), bert) for preset in ("lora", "bitfit"))
    table = _table(**{"lora.down": _entry(0, 1)})
    for _ in range(2):
        assert "tensor 'lora.up' is missing" in table_reasons(table, ours.manifest.parts, bert.config)
        assert "tensor 'lora.down' belongs to no part" in table_reasons(table, theirs.manifest.parts, bert.config)
