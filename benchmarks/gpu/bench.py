"""Checks and times on one device, one line of JSON each."""

import itertools
import json
import statistics
import time
from collections.abc import Callable, Mapping

import torch

Figure = dict[str, object]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Bench:
    """Records figures, and times calls on a device."""

    def __init__(self, device: torch.device, rounds: int) -> None:
        self.device, self.figures, self._rounds = device, list[Figure](), rounds
        self._started = time.monotonic()

    def record(self, section: str, **figure: object) -> None:
        self.figures.append({"section": section, **figure})
        print(json.dumps(self.figures[-1]), flush=True)

    def run(self, name: str, section: Callable[[], None], before_seconds: float) -> None:
        """Runs one section, unless `before_seconds` have passed."""
        late = time.monotonic() - self._started > before_seconds
        if not late:
            section()
        self.record("elapsed", after=name, skipped=late, seconds=round(time.monotonic() - self._started, 1))

    def check(self, section: str, error: float, tolerance: float, **figure: object) -> None:
        # `error <= tolerance` is false for NaN too.
        self.record(section, **figure, error=error, tolerance=tolerance, ok=bool(error <= tolerance))

    def seconds(self, calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
        """Median seconds of each call, after two to warm up (Triton compiles at the first); without rounds, of one."""
        taken: dict[str, list[float]] = {name: [] for name in calls}
        warm = 2 if self._rounds else 0
        for number, (name, call) in itertools.product(range(max(self._rounds, 1) + warm), calls.items()):
            self._wait()
            start = time.perf_counter()
            call()
            self._wait()
            if number >= warm:
                taken[name].append(time.perf_counter() - start)
        return {name: statistics.median(own) for name, own in taken.items()}

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
