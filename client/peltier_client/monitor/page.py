"""A page of Prometheus' text format as numbers, and what was added between two pages of one server."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from peltier_client.errors import UnexpectedAnswer

# The labels of a sample with their values.
_Key = frozenset[tuple[str, str]]

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_HISTOGRAM = re.compile("_(bucket|sum|count)$")
_BOUND = "le"


@dataclass(frozen=True)
class Distribution:
    """Values of a histogram: `counts[i]` at most `bounds[i]`, the last count above all bounds."""

    bounds: Sequence[float]
    counts: Sequence[float]
    total: float

    @property
    def count(self) -> int:
        """The number of values."""
        return round(sum(self.counts))

    @property
    def mean(self) -> float | None:
        """The mean of all values; None without any."""
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


class Page:
    """The samples of a page by name and labels. A page of several replicas has the label `replica`."""

    def __init__(self, samples: Mapping[str, Mapping[_Key, float]]) -> None:
        self._samples = samples

    @classmethod
    def parse(cls, text: str) -> "Page":
        """The page as a server writes it. Raises `UnexpectedAnswer` for another text."""
        samples = defaultdict[str, dict[_Key, float]](dict)
        try:
            for name, labels, value in _SAMPLE.findall(text):
                samples[name][frozenset(_LABEL.findall(labels))] = float(value)
        except ValueError as error:
            raise UnexpectedAnswer(f"the server's answer is no page of metrics: {error}") from error
        return cls(samples)

    @property
    def starts(self) -> Mapping[_Key, float]:
        """When each process of the page was started, by its labels."""
        return self._samples.get("process_start_time_seconds", {})

    def values(self, name: str) -> Iterator[tuple[Mapping[str, str], float]]:
        """The samples of a name, each with its labels."""
        return ((dict(key), value) for key, value in self._samples.get(name, {}).items())

    def total(self, name: str) -> float:
        """The sum of all samples of a name."""
        return sum(self._samples.get(name, {}).values())

    def totals(self, name: str, *labels: str) -> Mapping[tuple[str, ...], float]:
        """The sum for each combination of values of `labels`; 0 for any other."""
        found = defaultdict[tuple[str, ...], float](float)
        for own, value in self.values(name):
            found[tuple(own[label] for label in labels)] += value
        return found

    def distribution(self, name: str) -> Distribution:
        """All values of a histogram."""
        return self.distributions(name).get((), Distribution((), (), 0.0))

    def distributions(self, name: str, *labels: str) -> Mapping[tuple[str, ...], Distribution]:
        """A histogram for each combination of values of `labels`."""
        buckets = defaultdict[tuple[str, ...], dict[float, float]](lambda: defaultdict(float))
        for own, value in self.values(f"{name}_bucket"):
            buckets[tuple(own[label] for label in labels)][float(own[_BOUND])] += value
        totals = self.totals(f"{name}_sum", *labels)
        return {values: _distribution(upto, totals[values]) for values, upto in buckets.items()}

    def since(self, earlier: "Page") -> "Page":
        """What was added to every counter and histogram of the same processes. One that is smaller than before began
        again at 0."""
        old = earlier._samples
        again = {
            _series(name, key)
            for name, samples in self._samples.items()
            for key, value in samples.items()
            if value < old.get(name, {}).get(key, 0.0)
        }

        def before(name: str, key: _Key) -> float:
            return 0.0 if _series(name, key) in again else old.get(name, {}).get(key, 0.0)

        return Page(
            {
                name: {key: value - before(name, key) for key, value in samples.items()}
                for name, samples in self._samples.items()
            }
        )


def _distribution(upto: Mapping[float, float], total: float) -> Distribution:
    """From the number of values up to each bound, of which the last is infinite."""
    bounds = sorted(upto)
    counts = [upper - lower for lower, upper in pairwise([0.0, *(upto[bound] for bound in bounds)])]
    return Distribution(bounds[:-1], counts, total)


def _series(name: str, key: _Key) -> tuple[str, _Key]:
    """What the samples of one histogram have in common."""
    return _HISTOGRAM.sub("", name), frozenset(label for label in key if label[0] != _BOUND)
