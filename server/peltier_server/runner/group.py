"""Texts that are written in the same steps."""

from collections.abc import Sequence

from peltier_adapters.generation.generation import Draft, Generator
from peltier_backbone.load import Backbone

from peltier_server.runner.decode_job import DecodeJob


class Group:
    """Works over one generator. After a step that raised it must not be used any more."""

    def __init__(self, backbone: Backbone) -> None:
        self._generator = Generator(backbone)
        self._works: dict[Draft, DecodeJob] = {}

    @property
    def jobs(self) -> tuple[DecodeJob, ...]:
        """Those that take part in the next step."""
        return tuple(self._works.values())

    @property
    def num_rows(self) -> int:
        """Of the next step."""
        return self._generator.num_rows

    def join(self, jobs: Sequence[DecodeJob]) -> None:
        """Read the inputs of `jobs`; if that raises, none of them has joined."""
        self._generator.join([job.draft for job in jobs])
        self._works |= {job.draft: job for job in jobs}

    def drop(self, jobs: Sequence[DecodeJob]) -> None:
        """Take works out, unless they have left; their slots are free at once."""
        self._generator.drop([job.draft for job in jobs])
        for job in jobs:
            self._works.pop(job.draft, None)

    def step(self) -> list[DecodeJob]:
        """One token for each work; returns them."""
        return [self._works[draft] for draft in self._generator.step()]
