"""The memory of a process that is in RAM."""

from pathlib import Path


class ProcessMemory:
    """The memory of a process, by default this one: now, and the peak since `forget`."""

    def __init__(self, pid: int | str = "self") -> None:
        self._folder = Path(f"/proc/{pid}")

    def forget(self) -> None:
        """Starts a new peak."""
        (self._folder / "clear_refs").write_text("5")

    @property
    def peak_mib(self) -> float:
        """MiB at most."""
        return self._read("VmHWM")

    @property
    def now_mib(self) -> float:
        """MiB now."""
        return self._read("VmRSS")

    def _read(self, name: str) -> float:
        status = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(f"{name}:"))
