"""Texts that are decoded in the same steps."""

from collections.abc import Sequence

from peltier_adapters.generation.generation import Draft, Generator
from peltier_backbone.backbone import Backbone

from peltier_server.runner.decode_job import DecodeJob, StepStats


class DecodeGroup:
    """Jobs over one generator. A group whose step has raised must not be used again."""

    def __init__(self, backbone: Backbone) -> None:
        self._generator = Generator(backbone)
        self._jobs: dict[Draft, DecodeJob] = {}
        self._stats: StepStats | None = None

    @property
    def jobs(self) -> tuple[DecodeJob, ...]:
        """The jobs of the next step."""
        return tuple(self._jobs.values())

    @property
    def stats(self) -> StepStats:
        """The stats of the next step; they change when a job joins or leaves."""
        if self._stats is None:
            self._stats = StepStats(self.jobs)
        return self._stats

    @property
    def num_rows(self) -> int:
        """The rows of the next step."""
        return self._generator.num_rows

    def join(self, jobs: Sequence[DecodeJob]) -> None:
        """Computes the first pass of `jobs` and adds them; if it raises, none is added."""
        self._generator.join([job.draft for job in jobs])
        self._jobs |= {job.draft: job for job in jobs}
        self._stats = None

    def drop(self, jobs: Sequence[DecodeJob]) -> None:
        """Removes jobs, if they are still in the group, and frees their slots."""
        if not jobs:
            return
        self._generator.drop([job.draft for job in jobs])
        for job in jobs:
            self._jobs.pop(job.draft, None)
        self._stats = None

    def step(self) -> list[DecodeJob]:
        """Generates one token for each job; returns the jobs."""
        return [self._jobs[draft] for draft in self._generator.step()]
