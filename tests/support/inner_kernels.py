"""Calls of kernels that otherwise only `stack.c` calls."""

from dataclasses import dataclass

from peltier_backbone.native.interface import INTERFACE
from peltier_backbone.native.library import Library, as_matrix, is_half
from peltier_backbone.native.packed import PackedInt8
from peltier_backbone.native.program import ACTIVATIONS
from peltier_backbone.native.rows import NO_TABLE, PlacedRows, Table
from torch import Tensor

_AttendCall, _RotateCall, _KeepKeysCall, _ActivateCall, _FeedForwardInt8Call = (
    INTERFACE.structs[f"{name}_call"] for name in ("attend", "rotate", "keep_keys", "activate", "feed_forward_int8")
)


@dataclass(frozen=True)
class PlacedPrefixes:
    """The prefixes that the programs of `table` have at `place`, multiplied by the `gates` [rows]."""

    table: Table
    place: int = 0
    gates: Tensor | None = None


@dataclass(frozen=True)
class PlacedDistances:
    """The `queries` and `keys` of distances, one of them or both, as `attend_call` in kernels.h describes them: [heads,
    head size, distances] in float32, contiguous, with the distances between the tokens of the longest row."""

    queries: Tensor | None
    keys: Tensor | None

    def fields(self) -> dict[str, int]:
        """Those of the call."""
        named = {"distance_queries": self.queries, "distance_keys": self.keys}
        given = {name: tensor for name, tensor in named.items() if tensor is not None}
        assert given, "queries or keys"
        num_distances = {tensor.shape[2] for tensor in given.values()}
        assert len(num_distances) == 1, "both have the same distances"
        return {"distances": num_distances.pop(), **{name: tensor.data_ptr() for name, tensor in given.items()}}


def attend(
    library: Library, query: Tensor, key: Tensor, value: Tensor, head_stride: int, rows: PlacedRows, num_heads: int,
    prefixes: PlacedPrefixes | None = None, *, scale: float = 1.0, once: bool = False, rounded: bool = False,
    window: int | None = None, distances: PlacedDistances | None = None,
) -> Tensor:  # fmt: skip
    """The softmax attention of `query` [tokens, size] to keys and values of one layout. Their first dimension counts
    keys, and those of the next head lie `head_stride` elements further on. Products of queries and keys are times
    `scale`. If there are prefixes, their table has these rows, and their bias is 0. `once`: each row has one query,
    whose result is rounded in another order. `rounded`: products may be of bfloat16, as they are of queries in it; sums
    are float32. With a `window` (at least 1) a query sees the prefix and the keys of its row that are at most so many
    tokens away; rows then have as many keys as queries."""
    context = query.new_empty(len(query), query.shape[1])
    place, gates = (0, None) if prefixes is None else (prefixes.place, prefixes.gates)
    call = _AttendCall(
        context=as_matrix(context), query=as_matrix(query),
        keys=(key.data_ptr(), value.data_ptr(), key.stride(0), head_stride, is_half(key)),
        rows=rows.layout.data_ptr(), num_rows=len(rows), heads=num_heads, size=query.shape[1] // num_heads,
        once=once, rounded=rounded, window=window or 0, scale=scale,
        table=NO_TABLE if prefixes is None else prefixes.table.layout, place=place,
        gates=None if gates is None else gates.data_ptr(), **({} if distances is None else distances.fields()),
    )  # fmt: skip
    if library.functions.peltier_attend(call):
        raise MemoryError(f"no memory for attention over {len(rows)} rows")
    return context


def rotate(library: Library, x: Tensor, turns: Tensor, positions: Tensor, num_heads: int) -> None:
    """Turn the first `num_heads` heads of each row of x [tokens, width] in place by the angles of its position: `turns`
    [positions, head size] has their cosines, then their sines, `positions` is int64 [tokens]."""
    call = _RotateCall(
        x=as_matrix(x), turns=turns.data_ptr(), positions=positions.data_ptr(), tokens=len(x), heads=num_heads,
        size=turns.shape[1],
    )  # fmt: skip
    library.functions.peltier_rotate(call)


def keep_keys(library: Library, store: Tensor, key_value: Tensor, places: Tensor) -> None:
    """Write the keys and values of each row of `key_value` [rows, 2 * heads * size] to `store` [2, slots, heads, width,
    size]. Row r becomes key number `places[r]` (int64), counted over slots and heads."""
    _, _, heads, width, size = store.shape
    call = _KeepKeysCall(
        to=(store[0].data_ptr(), store[1].data_ptr(), size, width * size, is_half(store)), x=as_matrix(key_value),
        places=places.data_ptr(), rows=len(places), heads=heads, size=size,
    )  # fmt: skip
    library.functions.peltier_keep_keys(call)


def activate(library: Library, x: Tensor, activation: str, *, gated: bool = False) -> Tensor:
    """x [rows, width] activated in place; if `gated`, the first half of its columns times the second half."""
    width = x.shape[1] // (2 if gated else 1)
    call = _ActivateCall(y=as_matrix(x), rows=len(x), width=width, activation=ACTIVATIONS[activation], gated=gated)
    library.functions.peltier_activate(call)
    return x[:, :width]


def feed_forward_int8(
    library: Library, x: Tensor, expand: PackedInt8, contract: PackedInt8, activation: str, *, gated: bool = False
) -> Tensor:
    """`contract` of act(`expand` of x [rows, hidden]), as the single products and `activate` compute it."""
    y = x.new_empty(len(x), contract.outer)
    call = _FeedForwardInt8Call(
        y=as_matrix(y), x=as_matrix(x), expand=expand.address, contract=contract.address, rows=len(x),
        activation=ACTIVATIONS[activation], gated=gated,
    )  # fmt: skip
    if library.functions.peltier_feed_forward_int8(call):
        raise MemoryError(f"no memory for a feed-forward of {len(x)} rows")
    return y
