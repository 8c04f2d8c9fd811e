"""One library in its own process, which computes a case on request. The model that an engine makes of a checkpoint is
kept."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common.forced import environment
from common.libraries import installed, kept, last_line, run

BENCHMARKS = Path(__file__).parents[1]
# Libraries whose models `torch.compile` makes.
COMPILED = {"torchao", "zentorch"}


def converted(script: str, origin: str, name: str, *arguments: str, contents: bytes = b"") -> Path:
    """The folder of the model that a script of this folder makes with `--convert`, once for its own text, its library
    and `contents`. The script's last argument is the folder."""
    path = Path(__file__).with_name(script)

    def convert(folder: Path) -> None:
        command = [sys.executable, str(path), name, *arguments, str(folder), "--convert"]
        run(command, _environment(origin, os.cpu_count() or 1))

    return kept(
        name.replace(" ", "-"), b"".join((path.read_bytes(), installed(origin).name.encode(), contents)), convert
    )


def _environment(origin: str | None, num_threads: int) -> dict[str, str]:
    """A script can import the library and, as far as the library lets it, the harness."""
    path = [*([] if origin is None else [str(installed(origin))]), str(BENCHMARKS), os.environ.get("PYTHONPATH", "")]
    own = {"OMP_NUM_THREADS": str(num_threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return own | {"PYTHONPATH": os.pathsep.join(filter(None, path))}


class Contender:
    """Started with a script of this folder; `origin` is the library it needs beside the environment's own, `level` the
    instruction level that it is held to. `peak_bytes` is what its process has had in memory at most, after its last
    case. Every method raises RuntimeError once the process has ended."""

    def __init__(
        self, name: str, script: str, origin: str | None, *arguments: str, num_threads: int = 1,
        level: str | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.peak_bytes = 0
        self._num_threads = num_threads
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (`__exit__` closes it)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(script)), *arguments],
            env=os.environ | _environment(origin, num_threads) | environment(level),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.cases: list[str] = self._read()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def seconds(self, case: str) -> float:
        """What one run of `case` took: CPU time on one thread, time by the clock on several."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the read below says why
            self._process.stdin.write(json.dumps(case) + "\n")
            self._process.stdin.flush()
        cpu_seconds: float
        wall_seconds: float
        cpu_seconds, wall_seconds, self.peak_bytes = self._read()
        return cpu_seconds if self._num_threads == 1 else wall_seconds

    def __enter__(self) -> "Contender":
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the process by closing its input."""
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._errors.close()

    def _read(self):  # type: ignore[no-untyped-def]
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._errors.seek(0)
            raise RuntimeError(f"{self.name} has ended with status {status}: {last_line(self._errors.read())}")
        return json.loads(line)


@dataclass(frozen=True)
class Engine:
    """A library in one precision: `work` is what it computes, the first word of its script's name; builds of a library
    share a script, and so do those that `torch.compile` uses. `origin` is None for the environment's own."""

    work: str
    library: str
    precision: str
    origin: str | None = None
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return " ".join((self.library, self.precision, *(flag.strip("-") for flag in self.flags)))

    def start(self, checkpoint: Path, folder: Path, num_threads: int, level: str | None = None) -> Contender:
        """Its process, with its rows in `folder`, held to `level`. It makes its model before, if it needs one of its
        own."""
        name = "compiled" if self.library in COMPILED else self.library.partition("-")[0]
        script = f"{self.work}_{name}.py"
        arguments = self.name, self.precision, str(num_threads), str(checkpoint), str(folder)
        model = folder
        if self.origin:
            sources = checkpoint / "model.safetensors", *folder.glob("calibration.json")
            contents = b"".join(hashlib.sha256(file.read_bytes()).digest() for file in sources)
            model = converted(script, self.origin, *arguments, contents=contents)
        return Contender(
            self.name, script, self.origin, *arguments, str(model), *self.flags,
            num_threads=num_threads, level=level,
        )  # fmt: skip
