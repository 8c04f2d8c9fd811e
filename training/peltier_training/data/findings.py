"""Sentences about examples that can be trained on, and may not mean what they say. Imports no torch."""

from collections.abc import Iterator, Sequence

from peltier_training.data.data import LabelledData
from peltier_training.data.gold import entity_labels
from peltier_training.data.label_names import describe_alike


def find_doubts(data: LabelledData) -> Iterator[str]:
    """The sentences, for a report before the first step."""
    names: Sequence[str] = data.labels.names
    if data.labels.type == "token-classification":
        names = entity_labels(names)
    if (alike := describe_alike(names)) is not None:
        yield alike[0].upper() + alike[1:]
