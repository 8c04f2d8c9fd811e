"""The length of a task's labels in JSON."""

from array import array
from collections.abc import Sequence
from itertools import accumulate

from pydantic_core import to_json


class LabelBytes:
    """The bytes of a task's labels in JSON."""

    def __init__(self, labels: Sequence[str]) -> None:
        lengths = sorted((len(to_json(label)) for label in labels), reverse=True)
        self._of_longest = array("q", accumulate(lengths, initial=0))

    def __len__(self) -> int:
        return len(self._of_longest) - 1

    def of_longest(self, count: int) -> int:
        """The bytes of the `count` longest labels together."""
        return self._of_longest[min(count, len(self))]
