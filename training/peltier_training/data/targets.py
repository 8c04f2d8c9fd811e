"""The target strings of a T5's closed task, and the target of an example (docs/methods.md#tasks-as-text)."""

from bisect import bisect_left
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal

from peltier_adapters.inputs import Reader
from peltier_adapters.spec.tasks import TaskSpec, parse_names

from peltier_training.data.examples import Example
from peltier_training.data.labels import Labels
from peltier_training.errors import TrainingError

DEFAULT_STEP = 0.2  # docs/methods.md#sts-b
_MAX_TARGETS = 4096


def class_targets(chosen: str, names: Sequence[str]) -> tuple[str, ...]:
    """`digits` are the labels' positions (as in the paper), `words` their names, anything else a list of texts."""
    match chosen:
        case "digits":
            return tuple(str(index) for index in range(len(names)))
        case "words":
            return tuple(names)
    return parse_names("targets", chosen)


def number_targets(values: Sequence[float], step: float) -> tuple[str, ...]:
    """The multiples of `step` from the smallest of `values` to the largest, with the step's decimals."""
    width = Decimal(repr(step))
    decimals = max(-int(width.normalize().as_tuple().exponent), 0)
    first, last = (_multiple(value, width) for value in (min(values), max(values)))
    if last - first >= _MAX_TARGETS:
        raise TrainingError(
            f"labels from {min(values):g} to {max(values):g} have {last - first + 1} steps of {step:g}, more than "
            f"{_MAX_TARGETS}; give a larger regression step"
        )
    if first == last:
        raise TrainingError(
            f"in steps of {step:g} every label is {first * width:.{decimals}f}; a regression needs two different values"
        )
    return tuple(f"{number * width:.{decimals}f}" for number in range(first, last + 1))


def _multiple(value: float, step: Decimal) -> int:
    return int((Decimal(repr(value)) / step).to_integral_value(ROUND_HALF_EVEN))


class Numbers:
    """The numbers among which a regression answers."""

    def __init__(self, targets: Sequence[str]) -> None:
        self._sorted = sorted((Decimal(target), index) for index, target in enumerate(targets))

    def nearest(self, value: float) -> int:
        """The target nearest to `value`; halfway, the even multiple of the step, as `round` does."""
        exact = Decimal(repr(value))
        place = bisect_left(self._sorted, (exact, -1))
        if place in (0, len(self._sorted)):
            return self._sorted[min(place, len(self._sorted) - 1)][1]
        (below, under), (above, over) = self._sorted[place - 1 : place + 1]
        if exact - below != above - exact:
            return under if exact - below < above - exact else over
        return under if (below / (above - below)) % 2 == 0 else over


def gold_targets(task: TaskSpec, examples: Sequence[Example]) -> list[int]:
    labels = Labels(task.type, task.labels)
    if task.type == "classification":
        return [int(index) for index in labels.targets(examples)]
    numbers = Numbers(task.targets)
    return [numbers.nearest(value) for value in labels.numbers(examples)]


def gold_texts(task: TaskSpec, examples: Sequence[Example]) -> list[str]:
    if task.type == "text2text":
        return Labels(task.type, task.labels).texts(examples)
    return [task.targets[index] for index in gold_targets(task, examples)]


def target_ids(backbone: Reader, task: TaskSpec, text: str) -> tuple[int, ...]:
    """The tokens of a target without its end token, truncated to the task's maximum."""
    assert task.decoding is not None, "a T5 task says how long its answers are"
    return backbone.tokenizer.ids(text)[: task.decoding.max_new_tokens]
