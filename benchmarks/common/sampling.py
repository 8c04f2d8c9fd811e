"""Where the main thread of a process spends its CPU time: one stack per tick of the CPU timer."""

import json
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

_EVERY_SECONDS = 0.001


class Sampler:
    """Counts functions: those that ran, and those that they ran within.

    The timer counts CPU time of the whole process, and only Python's main thread gets its signal. CPU time of other
    threads is counted where the main thread waits.
    """

    def __init__(self) -> None:
        self._own, self._within = Counter[str](), Counter[str]()

    def start(self) -> None:
        """From now on. The kernel may tick more slowly than it is asked to."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, _EVERY_SECONDS, _EVERY_SECONDS)

    def stop(self, path: Path) -> None:
        """Leaves the shares of each function, from 0 to 1: {"own": {name: share}, "within": {name: share}}."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        total = self._own.total()
        counted = {"own": self._own, "within": self._within}
        shares = {kind: {name: count / total for name, count in one.most_common()} for kind, one in counted.items()}
        whole = path.with_suffix(".part")
        whole.write_text(json.dumps(shares))
        whole.rename(path)

    def _sample(self, _: int, frame: FrameType | None) -> None:
        stack = []
        while frame is not None:
            stack.append(_name(frame))
            frame = frame.f_back
        self._own[stack[0]] += 1
        self._within.update(set(stack))


def _name(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename)
    return f"{'/'.join(path.parts[-2:])} {frame.f_code.co_qualname}"
