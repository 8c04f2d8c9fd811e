"""The memory of this machine, or of the control group (cgroup v2) that a container is. Imports no torch."""

from pathlib import Path

_INFO = Path("/proc/meminfo")
_LIMIT = Path("/sys/fs/cgroup/memory.max")
# Messages of RuntimeErrors that torch's allocators and libraries, and the containers of C++, raise without memory.
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed", "bad_alloc")
# The whole message of oneDNN when it has no memory for the code that it generates for each new size of a batch. For an
# unsupported size the message is longer: "could not create a primitive descriptor for …".
_NO_MEMORY_FOR_CODE = "could not create a primitive"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on the host or on a GPU."""
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    message = str(error).lower()
    return message == _NO_MEMORY_FOR_CODE or any(words in message for words in _OUT_OF_MEMORY)


def available_bytes(info: Path = _INFO, limit: Path = _LIMIT) -> int | None:
    """What this process can have: all that is not in use, or the limit. None if the system tells neither."""
    return _smaller("MemAvailable", info, limit)


def total_bytes(info: Path = _INFO, limit: Path = _LIMIT) -> int | None:
    """What all processes have together, whatever is in use now. None if the system tells neither."""
    return _smaller("MemTotal", info, limit)


def _smaller(name: str, info: Path, limit: Path) -> int | None:
    found = [size for size in (_machine_bytes(name, info), _limit_bytes(limit)) if size is not None]
    return min(found, default=None)


def _machine_bytes(name: str, path: Path) -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in path.read_text(encoding="utf-8").splitlines())
        return int(lines[name].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def _limit_bytes(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no cgroup v2, or "max": no limit
        return None
