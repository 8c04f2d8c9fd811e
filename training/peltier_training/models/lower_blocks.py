"""The frozen blocks of an encoder below an adapter, whose states of a row are the same in every epoch."""

from collections.abc import Sequence

import torch
from peltier_backbone.attention.adaptation import NO_ADAPTATION, Adaptation
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded, Packed
from torch import Tensor

# 1.5 KB a token on MiniLM: 350,000 tokens.
MAX_BYTES = 512 * 2**20


class LowerBlocks:
    """The first `num` blocks and what is before them, without dropout: `num` is below the number of blocks.

    Keeps the states of at most `max_bytes`; those of further rows are computed again.
    """

    def __init__(self, backbone: Backbone, num: int, max_bytes: int = MAX_BYTES) -> None:
        self.num = num
        self._backbone = backbone
        self._kept: dict[Encoded, Tensor] = {}
        self._bytes_left = max_bytes

    def states(self, rows: Sequence[Encoded]) -> Tensor:
        """The states after these blocks, [tokens of all rows, hidden]. They have no gradient."""
        missing = [row for row in dict.fromkeys(rows) if row not in self._kept]
        computed = dict(zip(missing, self._compute(missing), strict=True)) if missing else {}
        found = torch.cat([computed[row] if row in computed else self._kept[row] for row in rows])
        for row, own in computed.items():
            self._keep(row, own)
        return found

    def finish(self, states: Tensor, packed: Packed, adaptation: Adaptation) -> Tensor:
        """The states after the last block, [tokens, hidden]."""
        return self._backbone.bert.advance(states, packed, adaptation, self._upper)

    @property
    def _upper(self) -> range:
        return range(self.num, self._backbone.config.num_layers)

    @torch.no_grad()
    def _compute(self, rows: Sequence[Encoded]) -> Sequence[Tensor]:
        packed, bert = self._backbone.pack(list(rows)), self._backbone.bert
        states = bert.advance(bert.embed(packed, NO_ADAPTATION), packed, NO_ADAPTATION, range(self.num))
        return torch.split(states, list(packed.lengths))

    def _keep(self, row: Encoded, states: Tensor) -> None:
        size = states.numel() * states.element_size()
        if size <= self._bytes_left:
            # Without the states of the other rows of the pass.
            self._kept[row] = states.clone()
            self._bytes_left -= size
