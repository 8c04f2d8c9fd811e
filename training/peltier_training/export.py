"""From a trained adapter to an artifact that proves itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peltier_adapters.artifact import Artifact, read_artifact, to_bytes
from peltier_adapters.bank import Banks
from peltier_adapters.batch import Row, encode_input, forward
from peltier_adapters.golden import check_golden
from peltier_adapters.manifest import BackboneRef, Golden, Input, Manifest, TaskSpec, TrainingRecord
from peltier_adapters.spec import Parts
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_training.data import Example
from peltier_training.errors import TrainingError
from peltier_training.evaluation import evaluate

GOLDEN_EXAMPLES = 4


@dataclass(frozen=True)
class Trained:
    """What training leaves: the served parts and tensors of one task."""

    name: str
    preset: str
    parts: Parts
    tensors: Mapping[str, Tensor]
    task: TaskSpec

    def artifact(
        self, backbone: Backbone, inputs: Sequence[Input], outputs: Sequence[Sequence[float]], record: TrainingRecord
    ) -> bytes:
        """The file's bytes with the given golden examples."""
        config = backbone.config
        manifest = Manifest(
            name=self.name,
            preset=self.preset,
            parts=self.parts,
            backbone=BackboneRef(
                family=config.family,
                fingerprint=backbone.fingerprint,
                hidden_size=config.hidden_size,
                num_layers=config.num_layers,
                num_parameters=config.num_parameters,
                name=backbone.name,
            ),
            task=self.task,
            training=record,
            golden=tuple(Golden(input=one, output=tuple(out)) for one, out in zip(inputs, outputs, strict=True)),
        )
        return to_bytes(manifest, self.tensors)

    def unproved(self, backbone: Backbone, inputs: Sequence[Input]) -> Artifact:
        """The adapter as a server would load it, before its golden outputs are known."""
        zeros = [(0.0,) * len(self.task.labels)] * len(inputs)
        return read_artifact(self.artifact(backbone, inputs, zeros, TrainingRecord()), backbone)


def measure(backbone: Backbone, adapter: Trained, examples: Sequence[Example]) -> dict[str, float]:
    """Metrics of the adapter as it will be served."""
    return evaluate(backbone, adapter.unproved(backbone, [examples[0].input]), examples)


def export(backbone: Backbone, adapter: Trained, inputs: Sequence[Input], record: TrainingRecord) -> bytes:
    """The artifact's bytes, with golden examples among `inputs`, read back and re-proved as a server would."""
    chosen = golden_inputs(backbone, adapter.task, inputs)
    resident = Banks(backbone).add(adapter.unproved(backbone, chosen))
    outputs = forward(backbone, [Row(encode_input(backbone, adapter.task, one), resident) for one in chosen])
    data = adapter.artifact(backbone, chosen, [output.logits.tolist() for output in outputs], record)
    reasons = check_golden(backbone, Banks(backbone).add(read_artifact(data, backbone)))
    if reasons:
        raise TrainingError(f"the trained adapter does not prove itself: {reasons[0]}")
    return data


def golden_inputs(backbone: Backbone, task: TaskSpec, inputs: Sequence[Input]) -> list[Input]:
    """Distinct inputs, evenly from the shortest to the longest."""
    by_length = sorted(dict.fromkeys(inputs), key=lambda one: len(encode_input(backbone, task, one)))
    last = len(by_length) - 1
    places = sorted({round(number * last / (GOLDEN_EXAMPLES - 1)) for number in range(GOLDEN_EXAMPLES)})
    return [by_length[place] for place in places]
