"""What decoder tokens see: the earlier tokens of their row, and their row's memory."""

from typing import Protocol

from torch import Tensor

from peltier_backbone.products import Attended


class View(Protocol):
    """Each gives a context [tokens, attention], and totals [tokens, heads] where they are asked for."""

    def own(self, layer: int, qkv: Tensor, total: bool) -> Attended:
        """Self-attention of decoder block `layer`; queries, keys and values are [tokens, 3 * attention]."""

    def cross(self, layer: int, query: Tensor, total: bool) -> Attended:
        """Cross-attention of decoder block `layer`; queries are [tokens, attention]."""
