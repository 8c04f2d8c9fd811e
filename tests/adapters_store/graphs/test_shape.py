"""Buckets: few, never too small, and rarely much too large."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.row import Row
from peltier_adapters.graphs.shape import MAX_TOKENS, BankShape, Shape, round_tokens, round_up, runs_of, shape_of
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded


@pytest.fixture(scope="module")
def residents(bert: Backbone, make_artifact: Callable[..., bytes]) -> list[Resident]:
    """Two LoRAs and two prefixes."""
    banks, drawn = Banks(bert), [(preset, seed) for preset in ("lora", "prefix") for seed in range(2)]
    return [banks.add(read_artifact(make_artifact(bert, preset, seed=seed), bert)) for preset, seed in drawn]


def _row(length: int, resident: Resident | None = None, **options: object) -> Row:
    return Row(replace(Encoded((5,) * length, (0,) * length), **options), resident)


@given(count=st.integers(1, MAX_TOKENS))
def test_tokens_are_rounded_up_by_less_than_a_quarter(count: int):
    """Pad tokens cost what others do."""
    rounded = round_tokens(count)
    assert count <= rounded < max(count * 1.25, count + 32)
    assert round_tokens(rounded) == rounded


def test_buckets_are_few():
    """Every number of tokens that a graph takes is one of some twenty; rows and groups are powers of two."""
    assert len({round_tokens(count) for count in range(1, MAX_TOKENS + 1)}) <= 24
    assert {round_up(count) for count in range(1, 129)} == {2**power for power in range(8)}


@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=20), data=st.data())
def test_a_shape_has_room_for_its_rows(lengths: list[int], data: st.DataObject, residents: list[Resident]):
    """Tokens, rows, the longest row, and each bank's rows and adapters."""
    owners = st.sampled_from([None, *residents])
    rows = sorted((_row(length, data.draw(owners)) for length in lengths), key=lambda row: row.order)
    shape = shape_of(rows)
    assert shape is not None
    assert shape.tokens >= sum(lengths)
    assert shape.rows >= len(rows)
    assert shape.longest >= max(lengths)
    for one, (bank, own) in zip(shape.banks, runs_of(rows), strict=True):
        assert one.bank is bank
        assert one.rows >= len(own)
        assert one.groups >= len({row.slot for row in own})


def test_a_shape_covers_those_with_less_room_for_the_same_banks(residents: list[Resident]):
    """A shape with other tokens is not covered, because its extra tokens would be computed in vain."""
    lora, prefix = residents[0].body, residents[2].body
    shape = Shape(64, 8, 16, (BankShape(lora, 4, 8), BankShape(prefix, 2, 2)))
    assert shape.covers(shape)
    assert shape.covers(shape._replace(rows=4, banks=(BankShape(lora, 2, 4), shape.banks[1])))
    others = [
        shape._replace(tokens=96), shape._replace(tokens=32), shape._replace(longest=32), shape._replace(rows=16),
        shape._replace(banks=shape.banks[:1]), shape._replace(banks=(BankShape(lora, 8, 8), shape.banks[1])),
        shape._replace(banks=(BankShape(prefix, 4, 8), shape.banks[1])),
    ]  # fmt: skip
    assert not any(shape.covers(other) for other in others)


def test_what_no_graph_serves_has_no_shape():
    """Rows with pads of their own, and batches so large that the host is no limit."""
    assert shape_of([_row(8), _row(8, pads=1)]) is None
    assert shape_of([_row(64)] * (MAX_TOKENS // 64)) is not None
    assert shape_of([_row(64)] * (MAX_TOKENS // 64) + [_row(1)]) is None
