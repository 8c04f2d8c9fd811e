"""An engine in one precision, in its own process; the model that it makes of a checkpoint is kept."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contender import Contender, converted


@dataclass(frozen=True)
class Engine:
    """A library in one precision: `work` is what it computes, the first word of its script's name; builds of a library
    share a script. `origin` is None for the environment's own."""

    work: str
    library: str
    precision: str
    origin: str | None = None
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return " ".join((self.library, self.precision, *(flag.strip("-") for flag in self.flags)))

    @contextmanager
    def start(
        self, checkpoint: Path, folder: Path, num_threads: int, level: str | None = None
    ) -> Iterator[Contender]:  # fmt: skip
        """Its process, with its rows in `folder`, held to `level`. It makes its model before, if it needs one of its
        own."""
        script = f"{self.work}_{self.library.partition('-')[0]}.py"
        arguments = self.name, self.precision, str(num_threads), str(checkpoint), str(folder)
        model = folder
        if self.origin:
            sources = checkpoint / "model.safetensors", *folder.glob("calibration.json")
            contents = b"".join(hashlib.sha256(file.read_bytes()).digest() for file in sources)
            model = converted(script, self.origin, *arguments, contents=contents)
        contender = Contender(
            self.name, script, self.origin, *arguments, str(model), *self.flags,
            num_threads=num_threads, level=level,
        )  # fmt: skip
        try:
            yield contender
        finally:
            contender.close()
