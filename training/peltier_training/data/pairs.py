"""The pairs of texts that an embedding is trained and measured on. Imports no torch."""

from collections.abc import Sequence

from peltier_adapters.artifact.manifest import TaskInput
from peltier_adapters.spec.tasks import TaskSpec

from peltier_training.data.examples import Example


def are_scored(examples: Sequence[Example]) -> bool:
    """Whether pairs have scores. Otherwise the texts of each pair belong together."""
    return examples[0].label is not None


def scale_scores(scores: Sequence[float]) -> list[float]:
    """Scores as cosines: as they are if all are from -1 to 1, else linearly from 0 for the smallest to 1."""
    least, most = min(scores), max(scores)
    if least >= -1 and most <= 1:
        return list(scores)
    return [(score - least) / (most - least or 1.0) for score in scores]


def number_texts(examples: Sequence[Example]) -> list[tuple[int, int]]:
    """The number of each text of each pair; equal texts have one number."""
    known: dict[str, int] = {}
    pairs = (texts_of(example) for example in examples)
    return [(known.setdefault(a, len(known)), known.setdefault(b, len(known))) for a, b in pairs]


def texts_of(example: Example) -> tuple[str, str]:
    """The two texts of an example."""
    assert not isinstance(example.input, str), "the task has two text columns"
    return example.input[0], example.input[1]


def inputs_of(task: TaskSpec, examples: Sequence[Example]) -> list[TaskInput]:
    """The inputs of the task in `examples`: single texts of an embedding's pairs."""
    if task.type != "embedding":
        return [example.input for example in examples]
    return [text for example in examples for text in texts_of(example)]
