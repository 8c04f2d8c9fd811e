"""The loop of a contender's process: it reads a line of JSON with a case and answers a line with its cost.

It uses only the standard library, because the interpreters of AdapterHub and PEFT cannot import the rest of this
project.
"""

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable

Case = Callable[[], object]
Cases = dict[str, Case]


def answer(cases: Cases) -> None:
    """Until standard input ends: runs the case of each line. Its answer is the CPU seconds that this took, the
    seconds by the clock, and the largest number of bytes that the process has had in memory so far."""
    # What libraries print must not come between the answers.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    output.write(json.dumps(sorted(cases)) + "\n")
    output.flush()
    # As servers do: what is loaded stays, and no collection between two answers walks it.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        case = cases[json.loads(line)]
        start, wall_start = time.process_time(), time.perf_counter()
        case()
        seconds, wall_seconds = time.process_time() - start, time.perf_counter() - wall_start
        peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        output.write(json.dumps([seconds, wall_seconds, peak_bytes]) + "\n")
        output.flush()
