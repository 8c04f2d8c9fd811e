"""Bounds the windows of long texts in one request."""

from collections.abc import Iterable

from peltier_client.errors import InvalidInput


def count_windows(inputs: Iterable[object]) -> int:
    """The rows of all inputs that are read in several rows; the others have no windows."""
    return sum(len(rows) for rows in inputs if isinstance(rows, tuple) and len(rows) > 1)


class WindowBudget:
    """The windows that all inputs of one request may have together. Belongs to the event loop."""

    def __init__(self, max_windows: int) -> None:
        self._max_windows = max_windows
        self.left = max_windows

    def take(self, num_windows: int) -> None:
        """Counts windows. Raises `InvalidInput` if they are too many, and counts none."""
        if num_windows > self.left:
            raise self.refusal(num_windows - self.left)
        self.left -= num_windows

    def give_back(self, num_windows: int) -> None:
        """Returns windows, because the server reads their inputs again."""
        self.left += num_windows

    def refusal(self, excess: int) -> InvalidInput:
        """The error of a request with at least `excess` windows too many."""
        return InvalidInput(
            f"the long texts of the request make {self._max_windows + excess} windows or more; at most "
            f"{self._max_windows} are allowed: send fewer or shorter texts, or set a smaller stride"
        )
