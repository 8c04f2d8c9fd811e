"""Counting before parsing."""

import json

from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.artifact.json_tokens import has_more_tokens

VALUES = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def _num_values(value: object) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_num_values, children))


@given(value=VALUES, escaped=st.booleans())
def test_a_text_has_no_fewer_tokens_than_values(value: object, escaped: bool) -> None:
    """For any content of its strings; the outermost value may have no token."""
    text = json.dumps(value, ensure_ascii=escaped, separators=(",", ":")).encode(errors="replace")
    limit = _num_values(value) - 2
    assert limit < 0 or has_more_tokens(text, limit)


def test_what_stands_in_strings_does_not_count() -> None:
    """A text of commas and brackets is one token."""
    assert not has_more_tokens(json.dumps({"inputs": ',[{"\\' * 10_000}).encode(), 4)
    assert has_more_tokens(b'{"inputs": "a"}', 2)


def test_any_bytes_are_counted_in_time_linear_in_their_length() -> None:
    """Quotes that never close, and backslashes before the end: seconds would mean that something is read twice."""
    for text in (b'"' * 2_000_001, b'"' + b'\\"' * 1_000_000, b"\\" * 2_000_000, b'"a' + b"\\" * 2_000_001):
        has_more_tokens(text, 10_000_000 // 5)
