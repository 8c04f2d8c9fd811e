"""A frozen map to queries, keys and values where heads share keys and values (Ainslie et al. 2023, section 2.2)."""

import torch
from torch import Tensor

from peltier_backbone.linear.linear import Linear, Map
from peltier_backbone.native.stack import FrozenMap


class SharedHeads(Map):
    """The map [3 * heads * size, in] whose keys and values are the same for `heads` / `key_heads` neighbours. `own` is
    the same map with each of them once, [(heads + 2 * key_heads) * size, in], and computes the product."""

    def __init__(self, own: Linear, heads: int, key_heads: int) -> None:
        self._own, self._heads, self._key_heads, self._bias = own, heads, key_heads, None
        self.packed_by = own.packed_by

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, in] -> [tokens, 3 * heads * size]."""
        return self._repeat(self._own(x))

    def place(self) -> FrozenMap | None:
        """That of `own`; the kernels repeat the keys and values of its result."""
        return self._own.place()

    def weights(self) -> tuple[Tensor, Tensor | None]:
        return self._repeat(self._own.weights()[0].t()).t(), None

    def _repeat(self, y: Tensor) -> Tensor:
        num, group = self._key_heads, self._heads // self._key_heads
        size = y.shape[1] // (self._heads + 2 * num)
        query, *shared = torch.split(y.reshape(-1, self._heads + 2 * num, size), [self._heads, num, num], 1)
        own = (x.unsqueeze(2).expand(-1, -1, group, -1) for x in shared)
        return torch.cat((query.reshape(-1, num, group, size), *own), 1).flatten(1)
