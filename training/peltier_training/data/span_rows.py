"""The windows of questions about contexts, and the tokens of their answers."""

from collections.abc import Sequence

import torch
from peltier_adapters.errors import InputError
from peltier_adapters.inputs import LongTexts, Reader, encode_windows
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.token_places import NOWHERE

from peltier_training.data.dataset import EncodedRows
from peltier_training.data.examples import Example
from peltier_training.data.gold_spans import GoldSpan
from peltier_training.errors import TrainingError

_NOTHING = (0, 0)  # the first token stands for no answer


def context_windows(backbone: Reader, task: TaskSpec, example: Example) -> tuple[Encoded, ...]:
    """The rows of an example. Raises a `TrainingError` with its line if it is invalid."""
    try:
        return encode_windows(backbone, task, example.input, LongTexts(stride=task.stride))
    except InputError as error:
        raise TrainingError(f"{example.where}: {error}") from None


def span_rows(backbone: Reader, task: TaskSpec, examples: Sequence[Example]) -> EncodedRows:
    """The windows of all examples. Their targets [windows, 3] are the tokens at which the first right answer starts and
    ends, the first token twice in a window without it, and the number of tokens."""
    rows, targets = list[Encoded](), list[tuple[int, int, int]]()
    for example in examples:
        for row in context_windows(backbone, task, example):
            start, end = find_tokens(row, example.label[0]) if example.label else _NOTHING
            rows.append(row)
            targets.append((start, end, len(row)))
    return EncodedRows(rows, torch.tensor(targets))


def find_tokens(row: Encoded, answer: GoldSpan) -> tuple[int, int]:
    """The first and the last token of an answer; twice the row's first token if part of it is not in the row."""
    start, text = answer.start, answer.text
    first, last = start + len(text) - len(text.lstrip()), start + len(text.rstrip())
    own = [place for place, (begin, end) in enumerate(row.offsets) if begin < last and first < end]
    placed = [span for span in row.offsets if span != NOWHERE]
    is_whole = bool(own) and placed[0][0] <= first and last <= placed[-1][1]
    return (own[0], own[-1]) if is_whole else _NOTHING
