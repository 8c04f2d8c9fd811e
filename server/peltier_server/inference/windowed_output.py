"""The outputs of one input that was read in windows."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from peltier_adapters.batch.row import Gates, RowOutput
from peltier_client.protocol import Input

from peltier_server.inference.tokenizing import EncodedInput


class WindowedOutput(NamedTuple):
    """An input, its rows, and the output of each row."""

    value: Input
    rows: EncodedInput
    outputs: Sequence[RowOutput]

    @property
    def gates(self) -> Gates | None:
        """The means of the gates of all rows, if they were recorded."""
        every = [output.gates for output in self.outputs if output.gates is not None]
        if not every:
            return None
        return {part: [_mean(layer) for layer in zip(*(own[part] for own in every), strict=True)] for part in every[0]}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def group_windows(
    inputs: Sequence[Input], encoded: Sequence[EncodedInput], outputs: Iterable[RowOutput]
) -> list[WindowedOutput]:
    """The outputs of each input. They are in the order of the rows of all inputs."""
    rest = iter(outputs)
    return [
        WindowedOutput(value, rows, list(islice(rest, len(rows)))) for value, rows in zip(inputs, encoded, strict=True)
    ]


def num_rows(output: object) -> int:
    """The number of rows that an output was computed from."""
    return len(output.rows) if isinstance(output, WindowedOutput) else 1
