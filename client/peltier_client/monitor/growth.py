"""How much counters and distributions grew between two readings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peltier_client.protocol import Distribution


@dataclass(frozen=True)
class Growth:
    """The values that came to a distribution: `counts[i]` at most `bounds[i]`, the last above all bounds."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float

    @classmethod
    def between(cls, earlier: Distribution | None, now: Distribution) -> "Growth":
        """From an earlier reading to a later one. None, or a larger one, is of a time before the counts began again."""
        if earlier is None or earlier.bounds != now.bounds or any(map(int.__gt__, earlier.counts, now.counts)):
            return cls(now.bounds, now.counts, now.total)
        counts = [new - old for old, new in zip(earlier.counts, now.counts, strict=True)]
        return cls(now.bounds, counts, now.total - earlier.total)

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """Of all values; None without any."""
        return self.total / self.count if self.count else None

    def quantile(self, share: float) -> float | None:
        """The value below which this share of all values is, interpolated between bounds; None without values.

        Above the last bound it is that bound.
        """
        if not self.count:
            return None
        left, lower = share * self.count, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if left <= count and count:
                return lower + (bound - lower) * left / count
            left, lower = left - count, bound
        return lower


def added(earlier: Mapping[str, int] | None, now: Mapping[str, int]) -> dict[str, int]:
    """How much each counter grew. One that is smaller than before began again at 0."""
    before = earlier or {}
    return {name: count - before.get(name, 0) if count >= before.get(name, 0) else count for name, count in now.items()}
