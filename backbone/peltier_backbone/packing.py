"""Rows laid back to back: no pad token is ever computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from peltier_backbone.shape import BackboneConfig


@dataclass(frozen=True)
class Encoded:
    """One tokenised row: ids and token types of equal length."""

    ids: tuple[int, ...]
    types: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Packed:
    """A batch of rows, back to back. Token tensors are [tokens]; `starts` has one entry a row and the total last."""

    ids: Tensor
    types: Tensor
    positions: Tensor
    lengths: tuple[int, ...]
    starts: tuple[int, ...]

    @property
    def first_tokens(self) -> Tensor:
        """Index of each row's first token, [rows]."""
        return torch.tensor(self.starts[:-1], device=self.ids.device)


def pack(rows: Sequence[Encoded], config: BackboneConfig, device: torch.device) -> Packed:
    """Lay `rows` back to back in the order given."""
    lengths = tuple(len(row) for row in rows)
    first = config.first_position
    positions = [position for length in lengths for position in range(first, first + length)]
    return Packed(
        ids=torch.tensor([token for row in rows for token in row.ids], device=device),
        types=torch.tensor([kind if config.typed else 0 for row in rows for kind in row.types], device=device),
        positions=torch.tensor(positions, device=device),
        lengths=lengths,
        starts=tuple(accumulate(lengths, initial=0)),
    )
