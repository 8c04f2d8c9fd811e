"""The header of a file: its JSON is bounded, and it is split into metadata and a tensor table."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.artifact.header import MAX_SHARED, has_more_tokens, split_header
from peltier_adapters.errors import ArtifactError

VALUES = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
SMALL_VALUES = st.recursive(
    st.none() | st.integers() | st.text('a\\"}{:,', max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text('a"}', max_size=2), inner, max_size=3),
    max_leaves=6,
)
ENTRY = {"shape": [1], "dtype": "F32", "data_offsets": [0, 4]}


def _num_values(value: object) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_num_values, children))


@given(value=VALUES, escaped=st.booleans())
def test_a_text_has_no_fewer_tokens_than_values(value: object, escaped: bool) -> None:
    """This holds for any contents of strings; only the outermost value may have no token."""
    text = json.dumps(value, ensure_ascii=escaped, separators=(",", ":")).encode(errors="replace")
    limit = _num_values(value) - 2
    assert limit < 0 or has_more_tokens(text, limit)


def test_what_stands_in_strings_does_not_count() -> None:
    """A string of commas and brackets is one token."""
    assert not has_more_tokens(json.dumps({"inputs": ',[{"\\' * 10_000}).encode(), 4)
    assert has_more_tokens(b'{"inputs": "a"}', 2)


def test_any_bytes_are_counted_in_time_linear_in_their_length() -> None:
    """Unterminated strings and trailing backslashes are not read twice, which would take seconds."""
    for text in (b'"' * 2_000_001, b'"' + b'\\"' * 1_000_000, b"\\" * 2_000_000, b'"a' + b"\\" * 2_000_001):
        has_more_tokens(text, 10_000_000 // 5)


@given(
    metadata=SMALL_VALUES,
    table=st.dictionaries(st.text('a"}:,', max_size=3), SMALL_VALUES, max_size=3),
    compact=st.booleans(),
    last=st.booleans(),
)
def test_a_header_is_split_as_the_whole_text_is_read(metadata, table, compact, last):
    """This holds for any metadata and table, in any order, with any spaces."""
    header = {**table, "__metadata__": metadata} if last else {"__metadata__": metadata, **table}
    found, rest = split_header(json.dumps(header, separators=(",", ":") if compact else None))
    assert found == metadata
    assert rest.entries == table


@pytest.mark.parametrize(
    "text",
    [
        '{"__metadata__":{}',
        '{"__metadata__":{},',
        '{"__metadata__":{},"a":1',
        '{"__metadata__":{},"a":1}}',
        '{"__metadata__":{},"a":1},"b":2}',
        '{"__metadata__":{}"a":1}',
    ],
)
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        split_header(text)


@pytest.mark.parametrize("text", ['{"__metadata__":{"a":NaN},"a":1}', '{"__metadata__":{},"a":Infinity}'])
def test_constants_that_json_does_not_have_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not JSON"):
        split_header(text)


def test_second_metadata_are_refused() -> None:
    """They are also found in the part that follows the first metadata."""
    with pytest.raises(ArtifactError, match=r"^the header names '__metadata__' twice$"):
        split_header('{"__metadata__":{},"a":1,"__metadata__":{}}')


def test_equal_tables_are_one() -> None:
    """Tables after different metadata are one object if their texts are equal."""
    headers = [{"__metadata__": {"number": number}, "a": ENTRY} for number in range(2)]
    one, two = (split_header(json.dumps(header, separators=(",", ":")))[1] for header in headers)
    other = split_header(json.dumps({**headers[0], "b": ENTRY}, separators=(",", ":")))[1]
    assert one.shared
    assert one is two
    assert one is not other
    assert other.entries.keys() == {"a", "b"}


def test_a_long_table_is_not_kept() -> None:
    """So any number of files takes the memory of a few short tables."""
    header = {"__metadata__": {}, **{f"tensor-{number}": ENTRY for number in range(1000)}}
    text = json.dumps(header, separators=(",", ":"))
    assert not split_header(text)[1].shared
    assert split_header(text)[1].entries == split_header(text)[1].entries
    assert MAX_SHARED * 8192 <= 2**20
