"""What tokens attend to. Methods return a context [tokens, attention], and if requested a logsumexp [tokens, heads]."""

from typing import Protocol

from torch import Tensor

from peltier_backbone.prefix_attention import Attended


class SelfView(Protocol):
    """The tokens of its own row that each token attends to."""

    def attend_self(self, layer: int, qkv: Tensor, with_logsumexp: bool) -> Attended:
        """Self-attention of block `layer`; queries, keys and values are [tokens, 3 * attention]."""


class View(SelfView, Protocol):
    """What decoder tokens attend to: earlier tokens of their row, and the encoder's states of their row."""

    def attend_cross(self, layer: int, query: Tensor, with_logsumexp: bool) -> Attended:
        """Cross-attention of decoder block `layer`; queries are [tokens, attention]."""
