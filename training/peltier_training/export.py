"""From a trained adapter to an artifact that proves itself."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from peltier_adapters.artifact import Artifact, read_artifact, to_bytes
from peltier_adapters.bank import Banks, Resident
from peltier_adapters.golden import check_golden
from peltier_adapters.inputs import encode_input
from peltier_adapters.label_tree import text_tree
from peltier_adapters.manifest import BackboneRef, Golden, Input, Manifest, TrainingRecord
from peltier_adapters.row import Row
from peltier_adapters.spec import Parts
from peltier_adapters.task_spec import TaskSpec
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_training.data import Example
from peltier_training.errors import NotFiniteError, TrainingError
from peltier_training.evaluation import examine
from peltier_training.scores import score_rows
from peltier_training.text_evaluation import write
from peltier_training.verdict import Verdict

GOLDEN_EXAMPLES = 4
_UNKNOWN_TEXT = "?"  # stands in a golden example until the adapter has written its own


@dataclass(frozen=True)
class Trained:
    """What training leaves: the served parts and tensors of one task."""

    name: str
    preset: str
    parts: Parts
    tensors: Mapping[str, Tensor]
    task: TaskSpec

    def artifact(self, backbone: Backbone, golden: Sequence[Golden], record: TrainingRecord) -> bytes:
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
            golden=tuple(golden),
        )
        return to_bytes(manifest, self.tensors)

    def unproved(self, backbone: Backbone, inputs: Sequence[Input]) -> Artifact:
        """The adapter as a server would load it, before its golden outputs are known."""
        zeros = (0.0,) * self.task.num_outputs
        text = _UNKNOWN_TEXT if self.task.type == "text2text" else None
        golden = [Golden(input=one, output=zeros, text=text) for one in inputs]
        return read_artifact(self.artifact(backbone, golden, TrainingRecord()), backbone)


def measure(
    backbone: Backbone, adapter: Trained, examples: Sequence[Example], *, record_gates: bool = False
) -> Verdict:
    """What the adapter answers as it will be served; a `NotFiniteError` for one that is no numbers."""
    if not all(bool(tensor.isfinite().all()) for tensor in adapter.tensors.values()):
        raise NotFiniteError(f"the tensors of adapter {adapter.name!r} are not finite numbers")
    return examine(backbone, adapter.unproved(backbone, [examples[0].input]), examples, record_gates=record_gates)


def export(backbone: Backbone, adapter: Trained, inputs: Sequence[Input], record: TrainingRecord) -> bytes:
    """The artifact's bytes, with golden examples among `inputs`, read back and re-proved as a server would."""
    chosen = golden_inputs(backbone, adapter.task, inputs)
    resident = Banks(backbone).add(adapter.unproved(backbone, chosen))
    data = adapter.artifact(backbone, _golden(backbone, adapter.task, resident, chosen), record)
    reasons = check_golden(backbone, Banks(backbone).add(read_artifact(data, backbone)))
    if reasons:
        raise TrainingError(f"the trained adapter does not prove itself: {reasons[0]}")
    return data


def _golden(backbone: Backbone, task: TaskSpec, resident: Resident, inputs: Sequence[Input]) -> list[Golden]:
    encoded = [encode_input(backbone, task, one) for one in inputs]
    texts: list[str | None] = [None] * len(inputs)
    if task.type == "text2text":
        texts = list(_golden_texts(backbone, task, [Row(one, resident) for one in encoded], inputs))
    trees = [None if text is None else text_tree(text, backbone) for text in texts]
    rows = [Row(one, resident, tree=tree) for one, tree in zip(encoded, trees, strict=True)]
    outputs = score_rows(backbone, rows)
    return [
        Golden(input=one, output=tuple(output.tolist()), text=text)
        for one, output, text in zip(inputs, outputs, texts, strict=True)
    ]


def _golden_texts(backbone: Backbone, task: TaskSpec, rows: Sequence[Row], inputs: Sequence[Input]) -> Iterator[str]:
    """What the adapter writes greedily; where that is nothing, the input's own text proves it as well."""
    assert task.decoding is not None, "a T5 task says how it answers"
    greedy = task.model_copy(update={"decoding": task.decoding.model_copy(update={"num_beams": 1})})
    for answer, one in zip(write(backbone, greedy, rows), inputs, strict=True):
        empty = not backbone.tokenizer.ids(answer.text)
        yield (one if isinstance(one, str) else one[0]) if empty else answer.text


def golden_inputs(backbone: Backbone, task: TaskSpec, inputs: Sequence[Input]) -> list[Input]:
    """Distinct inputs, evenly from the shortest to the longest."""
    by_length = sorted(dict.fromkeys(inputs), key=lambda one: len(encode_input(backbone, task, one)))
    last = len(by_length) - 1
    places = sorted({round(number * last / (GOLDEN_EXAMPLES - 1)) for number in range(GOLDEN_EXAMPLES)})
    return [by_length[place] for place in places]
