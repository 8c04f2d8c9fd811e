"""Time and memory of one more adapter against the number of loaded ones: Peltier, AdapterHub and PEFT.

    .venv/bin/python benchmarks/peers/loads.py [--adapters 200] [--json FILE]

Every library and method runs in its own process; they take turns after each load. The load of adapter n + 1 starts with
n loaded. Times are CPU milliseconds of the process, from a file or folder on the disk to a module or a slot, on MiniLM
with one thread. Memory is the growth of the process's peak resident bytes per adapter, after the first tenth.
AdapterHub and PEFT build modules; of these methods PEFT has only LoRA. Peltier also computes a digest.
"""

import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from contender import Contender
from peltier_backbone.checkpoint.checkpoint import find_checkpoint

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.harness import Table, add_json, create_parser, write_json

SCRIPTS = (
    ("peltier", "compacter", None),
    ("adapterhub", "compacter", "adapterhub"),
    ("peltier", "lora", None),
    ("adapterhub", "lora", "adapterhub"),
    ("peft", "lora", "peft"),
)


@dataclass(frozen=True)
class Loads:
    """The CPU seconds of each load, and the process's peak memory after it."""

    contender: Contender
    seconds: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)

    def load(self) -> None:
        """One more."""
        self.seconds.append(self.contender.seconds("load"))
        self.peak_bytes.append(self.contender.peak_bytes)

    def near(self, count: int) -> float:
        """Milliseconds of a load with about `count` adapters loaded: the median of ten loads."""
        first = max(0, min(count - 5, len(self.seconds) - 10))
        return 1e3 * statistics.median(self.seconds[first : first + 10])

    @property
    def adapter_bytes(self) -> float:
        """Memory of one more."""
        start = len(self.peak_bytes) // 10
        return (self.peak_bytes[-1] - self.peak_bytes[start]) / (len(self.peak_bytes) - 1 - start)


def report(found: Sequence[Loads], num_adapters: int) -> None:
    """A line a process."""
    counts = sorted({max(5, num_adapters // part) for part in (20, 4, 2, 1)})
    table = Table("", *(f"ms, {count} loaded" for count in counts), "x", "KB an adapter")
    for one in found:
        ratio = one.near(counts[-1]) / one.near(counts[0])
        cells = (f"{one.near(count):.1f}" for count in counts)
        table.row(one.contender.name, *cells, f"{ratio:.2f}", f"{one.adapter_bytes / 1e3:.0f}")


def main() -> None:
    parser = create_parser(__doc__, adapters=200)
    add_json(parser, "every load")
    given = parser.parse_args()
    checkpoint = str(find_checkpoint("minilm"))
    with ExitStack() as running:
        found: list[Loads] = []
        for library, method, origin in SCRIPTS:
            script = f"library_{library}.py", origin, "loads", method, checkpoint
            found.append(Loads(running.enter_context(Contender(f"{library}, {method}", *script))))
        for _ in range(given.adapters):
            for one in found:
                one.load()
    report(found, given.adapters)
    loads = {one.contender.name: {"seconds": one.seconds, "peak_bytes": one.peak_bytes} for one in found}
    write_json(given, loads)


if __name__ == "__main__":
    main()
