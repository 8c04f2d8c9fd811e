"""Texts that are written in the same steps."""

from collections.abc import Sequence

from peltier_adapters.generation.generation import Draft, Generator
from peltier_backbone.load import Backbone

from peltier_server.runner.decode_job import Work


class Group:
    """Works over one generator. After a step that raised it must not be used any more."""

    def __init__(self, backbone: Backbone) -> None:
        self._generator = Generator(backbone)
        self._works: dict[Draft, Work] = {}

    @property
    def works(self) -> tuple[Work, ...]:
        """Those that take part in the next step."""
        return tuple(self._works.values())

    @property
    def num_rows(self) -> int:
        """Of the next step."""
        return self._generator.num_rows

    def join(self, works: Sequence[Work]) -> None:
        """Read the inputs of `works`; if that raises, none of them has joined."""
        self._generator.join([work.draft for work in works])
        self._works |= {work.draft: work for work in works}

    def drop(self, works: Sequence[Work]) -> None:
        """Take works out, unless they have left; their slots are free at once."""
        self._generator.drop([work.draft for work in works])
        for work in works:
            self._works.pop(work.draft, None)

    def step(self) -> list[Work]:
        """One token for each work; returns them."""
        return [self._works[draft] for draft in self._generator.step()]
