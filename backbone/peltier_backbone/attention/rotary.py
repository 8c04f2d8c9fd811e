"""Rotary positions (Su et al. 2021): a query and a key at distance d have the same product wherever they are."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rotary:
    """The angles of every position, as a table [positions, head size] in float32: the cosines of the pairs of elements
    d and d + size / 2, then their sines."""

    turns: Tensor

    @classmethod
    def create(
        cls, theta: float, num_positions: int, head_size: int, device: torch.device, slowdown: float = 1.0
    ) -> Self:
        """Pair d turns by `theta` ** (-2 d / size) / `slowdown` for each position."""
        # The steps and their roundings are those of transformers: angles of thousands lose digits in float32.
        speeds = 1.0 / (theta ** (torch.arange(0, head_size, 2).float() / head_size)) / slowdown
        angles = torch.arange(num_positions).float()[:, None] * speeds
        return cls(torch.cat((angles.cos(), angles.sin()), 1).to(device))

    def rotate(self, qkv: Tensor, positions: Tensor) -> Tensor:
        """`qkv` [tokens, 3 * attention] with queries and keys turned by their positions [tokens]."""
        query, key, value = qkv.chunk(3, -1)
        cosines, sines = self.turns.index_select(0, positions)[:, None].chunk(2, -1)
        return torch.cat((_turn(query, cosines, sines), _turn(key, cosines, sines), value), 1)


def _turn(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """x [tokens, heads * size] turned by angles [tokens, 1, size / 2], computed in float32."""
    first, second = x.view(len(x), -1, 2 * cosines.shape[-1]).chunk(2, -1)
    turned = torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)
    return turned.flatten(1).to(x.dtype)
