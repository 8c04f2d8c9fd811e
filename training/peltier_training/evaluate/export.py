"""From a trained adapter to an artifact with golden examples."""

from collections.abc import Sequence

from peltier_adapters.artifact.manifest import TaskInput, TrainingRecord
from peltier_adapters.errors import AdapterError
from peltier_adapters.golden.proof import Candidate, prove
from peltier_adapters.inputs import encode_input
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone

from peltier_training.data.examples import Example, inputs_of
from peltier_training.errors import NotFiniteError, TrainingError
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.evaluate.examination import examine

GOLDEN_EXAMPLES = 4


def measure(
    backbone: Backbone, adapter: Candidate, examples: Sequence[Example], *, record_gates: bool = False
) -> Evaluation:
    """The evaluation of an adapter in its served form. Raises a `NotFiniteError` if tensors are not finite."""
    if not all(bool(tensor.isfinite().all()) for tensor in adapter.tensors.values()):
        raise NotFiniteError(f"the tensors of adapter {adapter.name!r} are not finite numbers")
    candidate = adapter.unproved(backbone, inputs_of(adapter.task, examples[:1]))
    return examine(backbone, candidate, examples, record_gates=record_gates)


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
        return prove(backbone, adapter, golden_inputs(backbone, adapter.task, inputs), record, trained_on)
    except AdapterError as error:
        raise TrainingError(str(error)) from None


def golden_inputs(backbone: Backbone, task: TaskSpec, inputs: Sequence[TaskInput]) -> list[TaskInput]:
    """Distinct inputs, evenly spaced from the shortest to the longest."""
    by_length = sorted(dict.fromkeys(inputs), key=lambda value: len(encode_input(backbone, task, value)))
    last = len(by_length) - 1
    places = sorted({round(number * last / (GOLDEN_EXAMPLES - 1)) for number in range(GOLDEN_EXAMPLES)})
    return [by_length[place] for place in places]
