"""A module as `peltier_adapters.limited_process.run` starts it; its job names what it does."""

import os
import time
from pathlib import Path
from typing import Any

from peltier_adapters.errors import AdapterError
from peltier_adapters.limited_process import Limits, answer


def work(job: dict[str, Any]) -> object:
    """One of the things that a limit ends, or the environment."""
    Limits(memory_bytes=2**26, cpu_seconds=1, file_bytes=1000, seconds=job.get("seconds", 60)).apply()
    match job["do"]:
        case "memory":
            try:
                return len(bytearray(2**27))
            except MemoryError:
                raise AdapterError("it is refused") from None
        case "file":
            try:
                return Path(job["path"]).write_bytes(bytes(1001))
            except OSError as error:
                raise AdapterError(str(error.strerror)) from None
        case "processor":
            while True:
                pass
        case "wait":
            time.sleep(1000)
    return dict(os.environ)


if __name__ == "__main__":
    answer(work)
