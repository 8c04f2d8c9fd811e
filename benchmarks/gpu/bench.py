"""Checks and times on one device, one line of JSON each."""

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch

Figure = dict[str, object]
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_MAX_REPEATS, _ROUND_SECONDS = 50, 0.2


def device_work(call: Callable[[], object]) -> dict[str, int]:
    """The kernels that a call launches, and its copies in both directions; zeros without a GPU."""
    with torch.profiler.profile() as profile:
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    names = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    copies = {way: sum(way in name for name in names) for way in ("HtoD", "DtoH")}
    return {"launches": sum(not name.startswith("Mem") for name in names), **copies}


class Bench:
    """Records figures, and times calls on a device in each of `dtypes`. Without rounds a call is timed once."""

    def __init__(self, device: torch.device, rounds: int, dtypes: Sequence[str]) -> None:
        self.device, self.figures, self._rounds = device, list[Figure](), rounds
        self.dtypes = {name: _DTYPES[name] for name in dtypes}
        self._started = time.monotonic()

    def record(self, section: str, **figure: object) -> None:
        self.figures.append({"section": section, **figure})
        print(json.dumps(self.figures[-1]), flush=True)

    def run(self, name: str, section: Callable[[], None], before_seconds: float) -> None:
        """Runs one section, unless `before_seconds` have passed. One that raises counts as a failed check."""
        late = time.monotonic() - self._started > before_seconds
        try:
            if not late:
                section()
        except Exception as error:  # the other sections still tell something
            self.record("error", after=name, ok=False, error=f"{type(error).__name__}: {error}")
        self.record("elapsed", after=name, skipped=late, seconds=round(time.monotonic() - self._started, 1))

    def check(self, section: str, error: float, tolerance: float, **figure: object) -> None:
        # `error <= tolerance` is false for NaN too.
        self.record(section, **figure, error=error, tolerance=tolerance, ok=bool(error <= tolerance))

    def seconds(self, calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
        """Median seconds of each call, in interleaved rounds.

        A round is up to 50 calls without a wait between them. So this is the time of the host or that of the device,
        whichever is longer. The call before the first round is not counted: Triton compiles there.
        """
        if not self._rounds:
            return {name: self._time(call, 1) for name, call in calls.items()}
        repeats = {}
        for name, call in calls.items():
            call()
            repeats[name] = max(1, min(_MAX_REPEATS, int(_ROUND_SECONDS / self._time(call, 1))))
        rounds = [{name: self._time(call, repeats[name]) for name, call in calls.items()} for _ in range(self._rounds)]
        return {name: statistics.median(one[name] for one in rounds) for name in calls}

    def _time(self, call: Callable[[], object], repeats: int) -> float:
        if self.device.type != "cuda":
            start = time.perf_counter()
            call()
            return time.perf_counter() - start
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        first.record()
        for _ in range(repeats):
            call()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1e3 / repeats
