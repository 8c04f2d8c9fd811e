"""What tokens attend to. Methods return a context [tokens, attention]: with `prefixes` that are placed, and with a
logsumexp [tokens, heads] if there are others, which the caller merges."""

from typing import Protocol

from torch import Tensor

from peltier_backbone.attention.prefix_attention import Attended, Prefixes
from peltier_backbone.native.program import Table
from peltier_backbone.native.stack import StackRows


class SelfView(Protocol):
    """The tokens of its own row that each token attends to."""

    def attend_self(self, layer: int, qkv: Tensor, prefixes: Prefixes | None) -> Attended:
        """Self-attention of block `layer`; queries, keys and values are [tokens, 3 * attention]."""


class View(SelfView, Protocol):
    """What decoder tokens attend to: earlier tokens of their row, and the encoder's states of their row."""

    def attend_cross(self, layer: int, query: Tensor, prefixes: Prefixes | None) -> Attended:
        """Cross-attention of decoder block `layer`; queries are [tokens, attention]."""


class PlacedView(Protocol):
    """What a native call of all layers reads."""

    def place(self, prefixes: Table | None) -> StackRows:
        """The keys that the queries of each row see; `prefixes`, if there are any, are of whole rows or of tokens."""


class NativeView(View, PlacedView, Protocol):
    """What a decoder's tokens attend to, for calls of each attention and for one call of all layers."""
