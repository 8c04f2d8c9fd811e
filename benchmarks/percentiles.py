"""How far percentiles that are interpolated between the bounds of a histogram are from those of all values.

Latencies are log-normal: 300 draws of 2,000, with medians from 3 ms to 1 s and standard deviations of the logarithm
from 0.1 to 0.6. The bounds before were those that Prometheus still gets of histograms with labels.
"""

import numpy as np
from peltier_server.metrics.series import FINE_SECONDS, VERSION_SECONDS, Series

BOUNDS = {
    "server, before": (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    "server": FINE_SECONDS,
    "version, before": (0.01, 0.025, 0.05, 0.1, 0.25, 1, 5),
    "version": VERSION_SECONDS,
}
SHARES = (0.5, 0.9, 0.99)


def main() -> None:
    """Prints a row of a table for each histogram."""
    random = np.random.default_rng(0)
    draws = [_latencies(random) for _ in range(300)]
    for name, bounds in BOUNDS.items():
        errors = np.array([_errors(bounds, values) for values in draws])
        cells = [f"{np.median(one):.1%} ({one.max():.0%})" for one in errors.T]
        print(f"| {name} | {len(bounds)} | {' | '.join(cells)} |")


def _latencies(random: np.random.Generator) -> np.ndarray:
    """[2000], in seconds."""
    median = 10 ** random.uniform(-2.5, 0)
    return np.asarray(median * np.exp(random.normal(0, random.uniform(0.1, 0.6), 2000)))


def _errors(bounds: tuple[float, ...], values: np.ndarray) -> list[float]:
    """The relative error of each percentile."""
    series = Series(bounds)
    for value in values.tolist():
        series.observe(value)
    return [abs(series.quantile(share) / float(np.quantile(values, share)) - 1) for share in SHARES]


if __name__ == "__main__":
    main()
