"""Buckets: few, never too small, and rarely much too large."""

from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.batch.shape import Shape
from peltier_adapters.graphs.buckets import MAX_TOKENS, round_shape, round_tokens, round_up


@given(count=st.integers(1, MAX_TOKENS))
def test_tokens_are_rounded_up_by_less_than_a_quarter(count: int):
    """Pad tokens cost what others do."""
    rounded = round_tokens(count)
    assert count <= rounded < max(count * 1.25, count + 32)
    assert round_tokens(rounded) == rounded


def test_buckets_are_few():
    """Rows are powers of two."""
    assert len({round_tokens(count) for count in range(1, MAX_TOKENS + 1)}) <= 28
    assert {round_up(count) for count in range(1, 129)} == {2**power for power in range(8)}


@given(sizes=st.tuples(*[st.integers(1, MAX_TOKENS)] * 3))
def test_a_shape_is_covered_by_its_bucket(sizes: tuple[int, int, int]):
    """Tokens, rows and the longest row."""
    shape = Shape(*sizes, frozenset(), frozenset())
    rounded = round_shape(shape)
    assert rounded is not None
    assert rounded.covers(shape)
    assert round_shape(rounded) in (rounded, None)


def test_a_batch_that_is_too_large_has_no_bucket():
    """It keeps the device busy without a graph."""
    assert round_shape(Shape(MAX_TOKENS + 1, 1, 1, frozenset(), frozenset())) is None
