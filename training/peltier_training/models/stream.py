"""The random numbers of one training pass."""

import numpy as np
import torch
from torch import Tensor

_BITS = 16


class Stream:
    """The dropout and the routes of one pass, drawn in the order of the calls.

    They depend on `key` alone, such as a seed and a step: not on torch's global generator, not on other trainings in
    the process, and not on whether a training was resumed. Without a key torch's global generator chooses one.

    A step may be divided into several pieces. They have the same routes, unless each row has its own, and dropouts of
    their own."""

    def __init__(self, *key: int, piece: int = 0) -> None:
        whole = key or (int(torch.randint(2**62, ())),)
        self._key = (*whole, piece) if piece else whole
        self._generator = np.random.Generator(np.random.SFC64(self._key))
        self._of_whole = np.random.Generator(np.random.SFC64(whole)) if piece else self._generator
        self._on_device: torch.Generator | None = None

    def drop(self, x: Tensor, rate: float) -> Tensor:
        """`x` with elements set to 0 with probability `rate`, below 1, and the others scaled to the same mean."""
        if not rate:
            return x
        mask = self._cpu_mask(tuple(x.shape), rate) if x.device.type == "cpu" else self._device_mask(x, rate)
        return x * mask.to(x)

    def _cpu_mask(self, shape: tuple[int, ...], rate: float) -> Tensor:
        """`rate` is rounded to a multiple of 2^-16. Bits of numpy take a third of the time of torch's Bernoulli numbers
        on a CPU."""
        most = 2 ** (_BITS - 1)
        bits = torch.from_numpy(self._generator.integers(-most, most, size=shape, dtype=np.int16))
        dropped = round(rate * 2**_BITS)
        kept: Tensor = bits >= dropped - most
        return kept.float().mul_(2**_BITS / (2**_BITS - dropped))

    def _device_mask(self, x: Tensor, rate: float) -> Tensor:
        """Drawn on the device, because a copy to it would wait for the steps before."""
        if self._on_device is None:
            seed = int(np.random.SeedSequence(self._key).generate_state(1, np.uint64)[0] >> 1)
            self._on_device = torch.Generator(x.device).manual_seed(seed)
        return torch.empty_like(x).bernoulli_(1 - rate, generator=self._on_device).div_(1 - rate)

    def routes(self, copies: int, shape: tuple[int, ...]) -> Tensor:
        """Numbers below `copies`; the first dimension has the draws."""
        generator = self._of_whole if shape[0] == 1 else self._generator
        return torch.from_numpy(generator.integers(copies, size=shape))
