"""Makes an artifact from parts, tensors and a task, chooses golden inputs that react to every tensor, and records the
golden examples."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from torch import Tensor

from peltier_adapters.answers import vectors
from peltier_adapters.artifact.artifact import Artifact, read_artifact, to_bytes
from peltier_adapters.artifact.label_tree import text_tree
from peltier_adapters.artifact.manifest import BackboneRef, Golden, Manifest, TaskInput, TrainingRecord
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.errors import AdapterError
from peltier_adapters.generation import create_draft, generate
from peltier_adapters.golden.golden import check_golden, distance
from peltier_adapters.golden.identity import SubstituteProof
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.decoding import Decoding
from peltier_adapters.spec.parts import HeadSpec, Parts
from peltier_adapters.spec.tasks import TaskSpec

logger = logging.getLogger(__name__)

_PLACEHOLDER_TEXT = "?"  # in a golden example, until the adapter has generated its text


@dataclass(frozen=True)
class Candidate:
    """The parts and tensors of an adapter that becomes an artifact."""

    name: str
    preset: str
    parts: Parts
    tensors: Mapping[str, Tensor]
    task: TaskSpec

    def to_bytes(
        self,
        backbone: Backbone,
        golden: Sequence[Golden],
        record: TrainingRecord,
        substitute_output: Sequence[float] | None = None,
    ) -> bytes:
        """The file with the given golden examples, and the output on the backbone's substitute."""
        manifest = Manifest(
            name=self.name,
            preset=self.preset,
            parts=self.parts,
            backbone=create_reference(backbone),
            task=self.task,
            training=record,
            golden=tuple(golden),
            substitute_output=None if substitute_output is None else tuple(substitute_output),
        )
        return to_bytes(manifest, self.tensors)

    def unproved(self, backbone: Backbone, inputs: Sequence[TaskInput]) -> Artifact:
        """The adapter as a server would load it, with placeholders as golden outputs."""
        # The values of one token are enough if an output has values for each token.
        zeros = (0.0,) * _num_values(self.parts, self.task)
        text = _PLACEHOLDER_TEXT if self.task.type == "text2text" else None
        golden = [Golden(input=value, output=zeros, text=text) for value in inputs]
        return read_artifact(self.to_bytes(backbone, golden, TrainingRecord()), backbone)


def _num_values(parts: Parts, task: TaskSpec) -> int:
    head = parts[-1]
    return head.num_values if isinstance(head, HeadSpec) else task.num_outputs


def create_reference(backbone: Backbone) -> BackboneRef:
    """The description of a backbone in an artifact."""
    config = backbone.config
    return BackboneRef(
        family=config.family,
        fingerprint=backbone.fingerprint,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        num_parameters=config.num_parameters,
        name=backbone.name,
    )


def prove(
    backbone: Backbone,
    adapter: Candidate,
    inputs: Sequence[TaskInput],
    record: TrainingRecord,
    trained_on: Backbone | None = None,
) -> bytes:
    """The artifact's bytes, with golden examples for `inputs`. They are read and checked again, as a server would
    do. `trained_on` is the same backbone in another precision. If the check on it succeeds too, the manifest's `proved`
    names that precision.

    Raises `AdapterError` if the check on `backbone` fails, or if the outputs are not finite. If only that on
    `trained_on` fails, it logs a warning."""
    unproved = adapter.unproved(backbone, inputs)
    golden = _golden(backbone, adapter.task, Banks(backbone).add(unproved), inputs)
    data = adapter.to_bytes(backbone, golden, record, SubstituteProof(backbone).run(unproved).tolist())
    artifact = read_artifact(data, backbone)
    if reasons := check_golden(backbone, artifact):
        raise AdapterError(f"adapter {adapter.name!r} does not reproduce its golden examples: {reasons[0]}")
    if trained_on is None:
        return data
    if reasons := check_golden(trained_on, artifact):
        logger.warning("servers in %s will refuse adapter %r: %s", trained_on.precision, adapter.name, reasons[0])
        return data
    proved = (*artifact.manifest.proved, trained_on.precision)
    return to_bytes(artifact.manifest.model_copy(update={"proved": proved}), artifact.tensors)


def _golden(backbone: Backbone, task: TaskSpec, resident: Resident, inputs: Sequence[TaskInput]) -> list[Golden]:
    encoded = [encode_input(backbone, task, value) for value in inputs]
    texts: list[str | None] = [None] * len(inputs)
    if task.type == "text2text":
        texts = list(_texts(backbone, write(backbone, task, [Row(tokens, resident) for tokens in encoded]), inputs))
    trees = [None if text is None else text_tree(text, backbone) for text in texts]
    rows = [Row(tokens, resident, tree=tree) for tokens, tree in zip(encoded, trees, strict=True)]
    outputs = [vectors.recorded(task, output.logits) for output in forward(backbone, rows)]
    if not all(bool(output.isfinite().all()) for output in outputs):
        raise AdapterError("the adapter's outputs are not finite")
    return [
        Golden(input=value, output=tuple(output.flatten().tolist()), text=text)
        for value, output, text in zip(inputs, outputs, texts, strict=True)
    ]


def write(backbone: Backbone, task: TaskSpec, rows: Sequence[Row]) -> list[str]:
    """The texts that the adapter generates greedily."""
    assert task.decoding is not None, "a T5 task has a decoding"
    drafts = [create_draft(backbone, row, Decoding(task.decoding.max_new_tokens)) for row in rows]
    generate(backbone, drafts, max_rows=len(rows))
    if any(draft.failed for draft in drafts):
        raise AdapterError("the adapter's outputs are not finite")
    return [backbone.tokenizer.decode(draft.ids) for draft in drafts]


def _texts(backbone: Backbone, written: Sequence[str], inputs: Sequence[TaskInput]) -> Iterator[str]:
    """Golden texts: the generated ones, and the text of the input if the generated one is empty."""
    for text, value in zip(written, inputs, strict=True):
        yield text if backbone.tokenizer.ids(text) else (value if isinstance(value, str) else value[0])


_MAX_CANDIDATES = 16


def choose_inputs(backbone: Backbone, adapter: Candidate, inputs: Sequence[TaskInput], count: int) -> list[TaskInput]:
    """At most `count` distinct inputs, in the order of their lengths: those that together react most to the tensors of
    the adapter, each relative to the strongest reaction to it. They have no more tokens than inputs that are evenly
    spaced from the shortest to the longest. For a text2text task these are chosen, because the adapter would have to
    write a text for each candidate."""
    encoded = {value: encode_input(backbone, adapter.task, value) for value in dict.fromkeys(inputs)}
    by_length = sorted(encoded, key=lambda value: len(encoded[value]))
    spaced = _evenly_spaced(by_length, count)
    if adapter.task.type == "text2text" or len(by_length) <= count:
        return spaced
    candidates = _evenly_spaced(by_length, _MAX_CANDIDATES)
    reactions = _reactions(backbone, adapter.unproved(backbone, candidates[:1]), [encoded[one] for one in candidates])
    sizes = [len(encoded[value]) for value in candidates]
    chosen = _cover(reactions, sizes, count, sum(len(encoded[value]) for value in spaced))
    return [candidates[place] for place in sorted(chosen)]


def _evenly_spaced(values: Sequence[TaskInput], count: int) -> list[TaskInput]:
    last = len(values) - 1
    return [values[place] for place in sorted({round(number * last / (count - 1)) for number in range(count)})]


def _reactions(backbone: Backbone, artifact: Artifact, rows: Sequence[Encoded]) -> Tensor:
    """How far the scores of each row move if the values of a tensor are rearranged, [tensors, rows], relative to the
    row that moves most."""
    task, own = artifact.manifest.task, _outputs(backbone, artifact, rows)
    generator = torch.Generator().manual_seed(0)
    moved = []
    for name, tensor in artifact.tensors.items():
        wrong = Artifact(artifact.manifest, {**artifact.tensors, name: _rearranged(tensor, generator)}, name)
        others = _outputs(backbone, wrong, rows)
        moved.append([distance(task, other, wanted) for other, wanted in zip(others, own, strict=True)])
    table = torch.tensor(moved).nan_to_num(0, posinf=0)
    return table / table.amax(1, keepdim=True).clamp(min=torch.finfo().tiny)


def _outputs(backbone: Backbone, artifact: Artifact, rows: Sequence[Encoded]) -> list[Tensor]:
    resident = Banks(backbone).add(artifact)
    return [output.logits for output in forward(backbone, [Row(row, resident) for row in rows])]


def _rearranged(tensor: Tensor, generator: torch.Generator) -> Tensor:
    if tensor.numel() == 1:
        return 2 * tensor
    return tensor.flatten()[torch.randperm(tensor.numel(), generator=generator)].view(tensor.shape)


def _cover(reactions: Tensor, sizes: Sequence[int], count: int, num_tokens: int) -> list[int]:
    """The columns that, one after the other, add most to the sum over rows of the largest reaction. The `sizes` of all
    are at most `num_tokens` in total, which is at least `count` times the smallest."""
    chosen: list[int] = []
    reached = torch.zeros(len(reactions))
    for left in range(count - 1, -1, -1):
        room = num_tokens - sum(sizes[place] for place in chosen) - left * sizes[0]
        allowed = [place for place, size in enumerate(sizes) if size <= room and place not in chosen]
        if not allowed:
            break
        gains = torch.maximum(reactions[:, allowed], reached[:, None]).sum(0)
        chosen.append(allowed[int(gains.argmax())])
        reached = torch.maximum(reached, reactions[:, chosen[-1]])
    return chosen
