"""Rotary positions (Su et al. 2021): a query and a key at distance d have the same product wherever they are."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from peltier_backbone.checkpoint.fields import Yarn


@dataclass(frozen=True)
class Rotary:
    """The angles of every position, as a table [positions, head size] in float32: the cosines of the pairs of elements
    d and d + size / 2, then their sines."""

    turns: Tensor

    @classmethod
    def create(  # noqa: PLR0913 - the numbers of a configuration
        cls,
        theta: float,
        num_positions: int,
        head_size: int,
        device: torch.device,
        slowdown: float = 1.0,
        yarn: Yarn | None = None,
    ) -> Self:
        """Pair d turns by `theta` ** (-2 d / size) / `slowdown` for each position. With `yarn` its turns are stretched,
        and its table contains the gain."""
        # The steps and their roundings are those of transformers: angles of thousands lose digits in float32.
        periods = theta ** (torch.arange(0, head_size, 2).float() / head_size)
        speeds = 1.0 / periods / slowdown if yarn is None else _stretch(periods, theta, yarn)
        angles = torch.arange(num_positions).float()[:, None] * speeds
        turns = torch.cat((angles.cos(), angles.sin()), 1)
        return cls((turns if yarn is None else turns * yarn.gain).to(device))

    def rotate(self, qkv: Tensor, positions: Tensor) -> Tensor:
        """`qkv` [tokens, 3 * attention] with queries and keys turned by their positions [tokens]."""
        query, key, value = qkv.chunk(3, -1)
        cosines, sines = self.turns.index_select(0, positions)[:, None].chunk(2, -1)
        return torch.cat((_turn(query, cosines, sines), _turn(key, cosines, sines), value), 1)


def _stretch(periods: Tensor, theta: float, yarn: Yarn) -> Tensor:
    """The speeds of pairs with these `periods` [pairs] at unstretched positions (YaRN, Eq. 18 to 23)."""
    size = 2 * len(periods)

    def pair_that_turns(times: float) -> float:
        """The pair, as a fraction, that turns so often in a row of `yarn.positions` tokens."""
        return size * math.log(yarn.positions / (times * 2 * math.pi)) / (2 * math.log(theta))

    first = max(math.floor(pair_that_turns(yarn.fast)), 0)
    last = min(math.ceil(pair_that_turns(yarn.slow)), size - 1)
    stretched = ((torch.arange(len(periods)).float() - first) / max(last - first, 0.001)).clamp(0, 1)
    kept = 1 - stretched
    return 1.0 / (yarn.factor * periods) * (1 - kept) + 1.0 / periods * kept


def _turn(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """x [tokens, heads * size] turned by angles [tokens, 1, size / 2], computed in float32."""
    first, second = x.view(len(x), -1, 2 * cosines.shape[-1]).chunk(2, -1)
    turned = torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)
    return turned.flatten(1).to(x.dtype)
