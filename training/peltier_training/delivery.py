"""From a trained adapter to its artifact, and the check of all that a server would refuse whatever is learned."""

from collections.abc import Sequence
from pathlib import Path

from peltier_adapters import durable
from peltier_adapters.answers.vectors import num_recorded
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.artifact.manifest import Golden, TaskInput, TrainingRecord
from peltier_adapters.errors import AdapterError, sentences
from peltier_adapters.golden.proof import Candidate, choose_inputs, prove
from peltier_adapters.inputs import encode_input
from peltier_adapters.spec.parts import HeadSpec
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from pydantic import ValidationError

from peltier_training.data.examples import Example, inputs_of
from peltier_training.data.rows import encode_examples
from peltier_training.errors import TrainingError

NUM_GOLDEN = 4
# A header has room for all golden examples if each has so many characters of a text, which its JSON may write as seven
# bytes, and so many values.
_MAX_CHARS, _MAX_VALUES = 15_000, 20_000
_LONGEST_NUMBER = -1.1754943508222875e-38  # as JSON


def rehearse(backbone: Backbone, adapter: Candidate, examples: Sequence[Example]) -> None:
    """Raise a `TrainingError` if a server would refuse the artifact of `adapter` whatever it learns, or if the input of
    one of the examples cannot be read."""
    task = adapter.task
    encode_examples(backbone, task, examples)
    inputs = [shorten(backbone, task, value) for value in dict.fromkeys(inputs_of(task, examples))]
    longest = sorted(inputs, key=_num_chars)[-NUM_GOLDEN:]
    try:
        golden = [_placeholder(backbone, adapter, value) for value in longest]
        read_artifact(adapter.to_bytes(backbone, golden, TrainingRecord()), backbone)
    except ValidationError as error:
        raise TrainingError(f"no server would take the adapter: manifest {sentences(error)[0]}") from None
    except AdapterError as error:
        raise TrainingError(f"no server would take the adapter: {error}") from None


def _placeholder(backbone: Backbone, adapter: Candidate, value: TaskInput) -> Golden:
    task, head = adapter.task, adapter.parts[-1]
    num_values = head.num_values if isinstance(head, HeadSpec) and task.embeds else task.num_outputs
    if task.has_output_per_token:
        tokens = len(encode_input(backbone, task, value))
        num_values *= tokens if task.reads_tokens else num_recorded(tokens)
    return Golden(input=value, output=(_LONGEST_NUMBER,) * num_values, text="?" if task.type == "text2text" else None)


def _num_chars(value: TaskInput) -> int:
    return len(value) if isinstance(value, str) else sum(map(len, value))


def shorten(backbone: Backbone, task: TaskSpec, value: TaskInput) -> TaskInput:
    """The beginning of an input, if a header has no room for all of it or for the outputs of its tokens."""
    texts = (value,) if isinstance(value, str) else value
    *others, text = (one if len(one) <= _MAX_CHARS else one.lstrip()[:_MAX_CHARS] for one in texts)
    most = _MAX_VALUES // task.num_outputs if task.reads_tokens else task.max_length
    while task.max_length > most and len(encode_input(backbone, task, _input_of(*others, text))) > most:
        text = text.lstrip()[: len(text) // 2]
    return _input_of(*others, text)


def _input_of(*texts: str) -> TaskInput:
    return texts[0] if len(texts) == 1 else texts  # type: ignore[return-value]


def export(
    backbone: Backbone,
    adapter: Candidate,
    inputs: Sequence[TaskInput],
    record: TrainingRecord,
    trained_on: Backbone | None = None,
) -> bytes:
    """The artifact's bytes, with golden examples among `inputs`, read back and checked as a server does; also on
    `trained_on`, a backbone in another precision."""
    try:
        short = [shorten(backbone, adapter.task, value) for value in dict.fromkeys(inputs)]
        return prove(backbone, adapter, choose_inputs(backbone, adapter, short, NUM_GOLDEN), record, trained_on)
    except AdapterError as error:
        raise TrainingError(str(error)) from None


def write_file(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically. Raises a `TrainingError` if that fails."""
    try:
        durable.write_file(path, data)
    except OSError as error:
        raise TrainingError(f"output {path} cannot be written: {error.strerror}") from None
