"""From examples to datasets of the Trainer."""

from collections.abc import Sequence
from dataclasses import replace

from peltier_adapters.errors import InputError
from peltier_adapters.inputs import Reader, encode_input
from peltier_adapters.spec.parts import Parts, prompt_length
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.checkpoint.config import T5Config
from peltier_backbone.text.packing import Encoded

from peltier_training.data.dataset import EncodedRows, TextRow, TextRows
from peltier_training.data.examples import Example
from peltier_training.data.labels import Labels, number_queries
from peltier_training.data.pairs import texts_of
from peltier_training.data.span_rows import span_rows
from peltier_training.data.tag_rows import tag_rows
from peltier_training.data.targets import gold_texts, target_ids
from peltier_training.errors import TrainingError


def head_rows(backbone: Reader, task: TaskSpec, examples: Sequence[Example]) -> EncodedRows:
    """Inputs and targets of a task with a head. Raises a `TrainingError` with the line of an invalid example."""
    if task.type == "span":
        return span_rows(backbone, task, examples)
    if task.type == "token-classification":
        return tag_rows(backbone, task, examples)
    if task.type == "embedding":
        return _pair_rows(backbone, task, examples)
    encoded = [_encode(backbone, task, example) for example in examples]
    queries = number_queries(examples) if task.type == "ranking" else None
    return EncodedRows(encoded, Labels(task.type, task.labels).targets(examples), queries)


def _pair_rows(backbone: Reader, task: TaskSpec, examples: Sequence[Example]) -> EncodedRows:
    first, second = (
        [_encode(backbone, task, replace(example, input=texts_of(example)[place])) for example in examples]
        for place in range(2)
    )
    return EncodedRows(list(zip(first, second, strict=True)), Labels(task.type, task.labels).targets(examples))


def text_rows(backbone: Reader, task: TaskSpec, parts: Parts, examples: Sequence[Example]) -> TextRows:
    """Inputs, with placeholders for soft tokens of `parts`, and target texts of a T5's task."""
    config = backbone.config
    assert isinstance(config, T5Config), "callers look at `config.generates` first"
    start, end = config.start_token_id, config.eos_token_id
    soft = (0,) * prompt_length(parts)
    rows = []
    for example, text in zip(examples, gold_texts(task, examples), strict=True):
        encoded, target = _encode(backbone, task, example), target_ids(backbone, task, text)
        if not target:
            raise TrainingError(f"{example.where}: label {text!r} tokenizes to nothing")
        prompted = Encoded(soft + encoded.ids, soft + encoded.types)
        rows.append(TextRow(prompted, (start, *target), (*target, end)))
    return TextRows(rows)


def _encode(backbone: Reader, task: TaskSpec, example: Example) -> Encoded:
    try:
        return encode_input(backbone, task, example.input)
    except InputError as error:
        raise TrainingError(f"{example.where}: {error}") from None
