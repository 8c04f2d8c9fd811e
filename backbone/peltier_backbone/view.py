"""What tokens attend to. Each method gives a context [tokens, attention] and, if asked, a logsumexp [tokens, heads]."""

from typing import Protocol

from torch import Tensor

from peltier_backbone.prefix_attention import Attended


class SelfView(Protocol):
    """The tokens of a row that each token sees."""

    def attend_self(self, layer: int, qkv: Tensor, with_logsumexp: bool) -> Attended:
        """Self-attention of block `layer`; queries, keys and values are [tokens, 3 * attention]."""


class View(SelfView, Protocol):
    """What decoder tokens see: earlier tokens of their row, and the encoder's states of their row."""

    def attend_cross(self, layer: int, query: Tensor, with_logsumexp: bool) -> Attended:
        """Cross-attention of decoder block `layer`; queries are [tokens, attention]."""
