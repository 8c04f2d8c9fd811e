"""What tokens attend to: their own rows, and in a decoder an encoder's rows, with the prefixes of their adapters."""

from typing import Protocol

from torch import Tensor

from peltier_backbone.attention.prefix_attention import Attended, PrefixAttention


class SelfView(Protocol):
    """The tokens of its own row that each token attends to."""

    def attend_self(self, layer: int, number: int, x: Tensor, qkv: Tensor) -> Tensor:
        """The context [tokens, attention] of self-attention `number` of the model, in block `layer` of its stack.
        Queries, keys and values `qkv` are [tokens, 3 * attention], and are computed from `x`."""


class View(SelfView, Protocol):
    """What decoder tokens attend to: earlier tokens of their row, and the encoder's states of their row."""

    def attend_cross(self, layer: int, number: int, x: Tensor, query: Tensor) -> Tensor:
        """The context [tokens, attention] of cross-attention `number` of the model, in decoder block `layer`. The
        `query` is [tokens, attention], and is computed from `x`."""


class SelfRows(Protocol):
    """A `SelfView` without prefixes. Results have a logsumexp [tokens, heads] if the caller asks for it."""

    def attend_self(self, layer: int, qkv: Tensor, *, with_logsumexp: bool) -> Attended:
        """Self-attention of block `layer`; queries, keys and values are [tokens, 3 * attention]."""


class CrossRows(SelfRows, Protocol):
    """A `View` without prefixes."""

    def attend_cross(self, layer: int, query: Tensor, *, with_logsumexp: bool) -> Attended:
        """Cross-attention of decoder block `layer`; queries are [tokens, attention]."""


class PrefixedSelfView:
    """Implements `SelfView`: rows, and the prefixes of their adapters."""

    def __init__(self, rows: SelfRows, prefixes: PrefixAttention) -> None:
        self._rows, self._prefixes = rows, prefixes

    def attend_self(self, layer: int, number: int, x: Tensor, qkv: Tensor) -> Tensor:
        found = self._prefixes.find(number, x)
        attended = self._rows.attend_self(layer, qkv, with_logsumexp=found is not None)
        return self._prefixes.merge(qkv[:, : qkv.shape[1] // 3], attended, found)


class PrefixedView(PrefixedSelfView):
    """Implements `View`: a decoder's rows, and the prefixes of their adapters."""

    def __init__(self, rows: CrossRows, prefixes: PrefixAttention) -> None:
        super().__init__(rows, prefixes)
        self._cross_rows = rows

    def attend_cross(self, layer: int, number: int, x: Tensor, query: Tensor) -> Tensor:
        found = self._prefixes.find(number, x)
        attended = self._cross_rows.attend_cross(layer, query, with_logsumexp=found is not None)
        return self._prefixes.merge(query, attended, found)
