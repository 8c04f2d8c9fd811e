"""Golden examples: a server runs them for each upload, and compares its outputs with the trainer's.

The recorded outputs are those of a float32 backbone. In float32 a server's differ only by the order of rounding. In
bfloat16 and int8 the difference depends on how much the adapter amplifies rounding errors. So it is measured with
twins, which are copies of the adapter whose weights differ by one rounding. The twins run the same examples, and the
recorded scores may be a few times as far away as those of the twins. docs/notes/reliability.md shows what this accepts.

From the first adapted sub-layer on, a twin has slightly different values, which round differently, also in the
backbone. So the outputs of twins scatter as much as rounding makes them. This is Monte Carlo arithmetic (Parker, UCLA
CSD-970002, 1997) with perturbed weights of the adapter.

In these precisions a wrong tensor often moves the outputs less than rounding does. `identity.py` finds it, so the
golden examples of an artifact that it can judge only show how far the precision moves the outputs. Twins are run only
if it moves one far, and each example has a tolerance of its own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import le

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from torch import Tensor

from peltier_adapters.answers import embeddings, terms, vectors
from peltier_adapters.answers import labels as answers
from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.artifact.label_tree import text_tree
from peltier_adapters.artifact.manifest import Golden, Manifest
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row, RowOutput
from peltier_adapters.errors import ArtifactError, InputError
from peltier_adapters.golden.identity import SubstituteProof
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.parts import tensor_shapes
from peltier_adapters.spec.tasks import TaskSpec

# One rounding to the 8 bits of bfloat16. In int8 it is enough to move activations across the edges of their steps.
_UNIT = 2.0**-8
# With the three or four examples of an artifact, these estimate the scatter with an error of a fifth.
_NUM_TWINS = 4
# Far above the rounding errors of float32 after a dozen layers.
_MAX_FLOAT32_DIFFERENCE = 1e-4
# With a larger difference a wrong adapter could be as near as the right one: five of the eight bits are lost.
_MAX_DIFFERENCE = 2.0**-3
# Weights that are proved right may differ more, if their twins show that it is rounding or a server has accepted them.
_MAX_PROVED_DIFFERENCE = 2.0**-2
# Rounding alone makes this difference, because the golden row and the bare row run in different groups of the batch.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class _Tolerance:
    """What a precision allows: always `least`, and `scatter_factor` times the scatter of the twins. The factor is above
    1 because the recorded scores also differ by the rounding of the backbone's weights, which all twins share."""

    least: float
    scatter_factor: float


_TOLERANCES: Mapping[str, _Tolerance] = {
    "bfloat16": _Tolerance(2.0**-8, 5.0),  # one rounding
    # Twins do not show the rounding before the first block that an adapter changes much. The least covers that of a
    # whole backbone, so hardly any sound adapter needs twins.
    "int8": _Tolerance(2.0**-4, 8.0),
}


def golden_rows(backbone: Backbone, manifest: Manifest, resident: Resident) -> list[Row]:
    """The rows to run: every golden example with the adapter, then the shortest one with only the adapter's head.

    Raises `ArtifactError` for a golden input that does not fit the task, or whose recorded output has another number of
    tokens. So the outputs to be computed are no larger than the recorded ones.
    """
    encoded = [_encode(backbone, manifest.task, number, golden) for number, golden in enumerate(manifest.golden)]
    trees = [None if golden.text is None else text_tree(golden.text, backbone) for golden in manifest.golden]
    short = _shortest(manifest)
    rows = [Row(tokens, resident, tree=tree) for tokens, tree in zip(encoded, trees, strict=True)]
    if reasons := _other_num_tokens(manifest, rows):
        raise ArtifactError(reasons)
    return [*rows, Row(encoded[short], resident, bare=True, tree=trees[short])]


def _other_num_tokens(manifest: Manifest, rows: Sequence[Row]) -> list[str]:
    task = manifest.task
    if not task.has_output_per_token:
        return []
    if task.embeds:
        sizes = [vectors.num_recorded(row.num_inputs) * manifest.head.outputs for row in rows]
    else:
        sizes = [row.num_inputs * task.num_outputs for row in rows]
    return _other_sizes(sizes, [len(golden.output) for golden in manifest.golden])


def _shortest(manifest: Manifest) -> int:
    """The index of the shortest example, which is run twice."""
    lengths = [sum(map(len, golden.input)) for golden in manifest.golden]
    return lengths.index(min(lengths))


def _encode(backbone: Backbone, task: TaskSpec, number: int, golden: Golden) -> Encoded:
    try:
        return encode_input(backbone, task, golden.input)
    except InputError as error:
        raise ArtifactError([f"golden example {number}: {error}"]) from None


def keep_recorded(row: Row, output: RowOutput) -> RowOutput:
    """The part of the output of one of `golden_rows` that the judges read, so that the rest can be freed."""
    assert row.resident is not None, "golden rows have an adapter"
    return RowOutput(vectors.recorded(row.resident.task, output.logits), output.gates)


def judge_golden(
    backbone: Backbone, manifest: Manifest, outputs: Sequence[RowOutput], twins: Sequence[Sequence[RowOutput]] = ()
) -> list[str]:
    """Why the outputs of `golden_rows` are not the recorded ones; empty if they are. `twins` are the outputs of
    `num_twins` twins; they are needed only if the check fails without them."""
    *found, bare = [vectors.recorded(manifest.task, output.logits) for output in outputs]
    reasons = _not_finite(found) or _wrong_terms(backbone, manifest)
    reasons = reasons or _differences(backbone, manifest, found, _tolerances(backbone, manifest, found, twins))
    has_only_head = all(part.kind == "head" for part in manifest.parts)  # the row without the adapter has it too
    if not reasons and not has_only_head and _is_same(manifest.task, found[_shortest(manifest)], bare):
        reasons.append("the adapter has no effect: a golden output is the same without it")
    return reasons


def _wrong_terms(backbone: Backbone, manifest: Manifest) -> list[str]:
    if manifest.task.type != "sparse-embedding":
        return []
    terms = [golden.output[::2] for golden in manifest.golden]
    known = set(range(backbone.config.vocab_size))
    return [
        f"golden example {number}: its terms are not different entries of the vocabulary"
        for number, own in enumerate(terms)
        if len(set(own)) < len(own) or not known.issuperset(own)
    ]


def _is_same(task: TaskSpec, found: Tensor, bare: Tensor) -> bool:
    if task.type == "sparse-embedding":  # in which terms of equal logits may change places
        return distance(task, found, bare) <= _ROUNDING
    return torch.allclose(found, bare, rtol=_ROUNDING, atol=_ROUNDING)


def judge_stored(backbone: Backbone, manifest: Manifest, outputs: Sequence[RowOutput]) -> list[str]:
    """Like `judge_golden`, for an artifact that a server has accepted, maybe in another precision. Its weights are
    known to be right, so the check only measures how far this precision moves the outputs, without twins."""
    found = [vectors.recorded(manifest.task, output.logits) for output in outputs[:-1]]
    allowed = _largest_difference(manifest) if is_rounded(backbone) else _MAX_FLOAT32_DIFFERENCE
    return _not_finite(found) or _differences(backbone, manifest, found, [allowed] * len(found))


def check_golden(backbone: Backbone, artifact: Artifact) -> list[str]:
    """Loads the artifact, runs its golden examples and judges them, for callers that own the device."""
    if is_rounded(backbone) and (reasons := SubstituteProof(backbone).judge(artifact)):
        return reasons
    outputs = _run(backbone, artifact)
    reasons = judge_golden(backbone, artifact.manifest, outputs)
    if not reasons:
        return []
    count = num_twins(backbone, artifact.manifest, outputs)
    twins = [_run(backbone, create_twin(backbone, artifact, number)) for number in range(count)]
    return judge_golden(backbone, artifact.manifest, outputs, twins)


def _run(backbone: Backbone, artifact: Artifact) -> list[RowOutput]:
    return forward(backbone, golden_rows(backbone, artifact.manifest, Banks(backbone).add(artifact)))


def _not_finite(found: Sequence[Tensor]) -> list[str]:
    bad = [number for number, logits in enumerate(found) if not bool(torch.isfinite(logits).all())]
    return [f"golden example {number}: this server's output is not finite" for number in bad]


def _tolerances(
    backbone: Backbone, manifest: Manifest, found: Sequence[Tensor], twins: Sequence[Sequence[RowOutput]]
) -> list[float]:
    """How far the output of each golden example may be from the recorded one."""
    allowed = _TOLERANCES.get(backbone.precision)
    if allowed is None:
        return [_MAX_FLOAT32_DIFFERENCE] * len(found)
    moved = [
        [distance(manifest.task, vectors.recorded(manifest.task, twin[number].logits), logits) for twin in twins]
        for number, logits in enumerate(found)
    ]
    most = _largest_difference(manifest)
    if manifest.substitute_output is not None:  # its `SubstituteProof` shows that the weights are right
        return [min(max(_MAX_DIFFERENCE, allowed.scatter_factor * _scatter(own)), most) for own in moved]
    joint = allowed.scatter_factor * _scatter(list(chain.from_iterable(moved)))
    return [min(max(allowed.least, joint), most)] * len(found)


def _scatter(moved: Sequence[float]) -> float:
    """The root mean square; 0 if it is not finite, because such twins show nothing."""
    scatter = _rms(moved)
    return scatter if math.isfinite(scatter) else 0.0


def _largest_difference(manifest: Manifest) -> float:
    """Of outputs that are rounded, whatever their twins do."""
    return _MAX_DIFFERENCE if manifest.substitute_output is None else _MAX_PROVED_DIFFERENCE


def _differences(
    backbone: Backbone, manifest: Manifest, found: Sequence[Tensor], tolerances: Sequence[float]
) -> list[str]:
    recorded = [torch.tensor(example.output) for example in manifest.golden]
    if reasons := _other_sizes([own.numel() for own in found], [own.numel() for own in recorded]):
        return reasons
    off = _distances(manifest, found)
    if not all(map(le, _compared(backbone, manifest, off), tolerances)):  # a recorded value beyond float32 gives NaN
        where = f" in {backbone.precision}" if is_rounded(backbone) else ""
        return [
            f"golden example {number}: scores differ by {distance:.2g} from the recorded ones; "
            f"{tolerance:g} is allowed{where}"
            for number, (distance, tolerance) in enumerate(zip(off, tolerances, strict=True))
            if not distance <= tolerance
        ]
    judged = zip(found, recorded, tolerances, strict=True)
    return [reason for number, one in enumerate(judged) for reason in _another_label(manifest.task, number, *one)]


def _distances(manifest: Manifest, found: Sequence[Tensor]) -> list[float]:
    """How far each output is from the recorded one, which has as many values."""
    recorded = (torch.tensor(one.output).view_as(own) for one, own in zip(manifest.golden, found, strict=True))
    return [distance(manifest.task, logits, wanted) for logits, wanted in zip(found, recorded, strict=True)]


def _compared(backbone: Backbone, manifest: Manifest, off: Sequence[float]) -> Sequence[float]:
    """The differences that are compared with the tolerances. Of rounded outputs without a proof the scatter is that of
    all examples together, and so is the difference."""
    if is_rounded(backbone) and manifest.substitute_output is None:
        return [_rms(off)] * len(off)
    return off


def _other_sizes(found: Sequence[int], recorded: Sequence[int]) -> list[str]:
    """Why outputs of these numbers of values cannot be compared: another number of tokens."""
    return [
        f"golden example {number}: this server's output has {own} values, the recorded one {wanted}"
        for number, (own, wanted) in enumerate(zip(found, recorded, strict=True))
        if own != wanted
    ]


def _another_label(task: TaskSpec, number: int, logits: Tensor, recorded: Tensor, tolerance: float) -> list[str]:
    got, wanted = int(logits.argmax()), int(recorded.argmax())
    if task.type != "classification" or got == wanted:
        return []
    scores = _judged(task, recorded)
    top = scores.topk(2).values
    if float(top[0] - top[1]) <= 2 * tolerance * float(_scale(scores).max()):
        return []
    return [f"golden example {number}: the label is {task.labels[got]!r}, not the recorded one"]


def distance(task: TaskSpec, logits: Tensor, wanted: Tensor) -> float:
    """The largest difference of two outputs' scores, relative to the wanted ones where these are large; of two
    embeddings the length of their difference, relative to the wanted one's."""
    if task.type == "sparse-embedding":
        return terms.relative_distance(logits, wanted)
    if task.type == "multi-vector-embedding":
        return vectors.relative_distance(logits, wanted)
    if task.type == "embedding":
        return embeddings.relative_distance(embeddings.read(task, logits), embeddings.read(task, wanted))
    scores = _judged(task, wanted)
    return float(((_judged(task, logits) - scores).abs() / _scale(scores)).max())


def _judged(task: TaskSpec, logits: Tensor) -> Tensor:
    # On T5 log-likelihoods, because probabilities among the targets would hide or amplify rounding errors.
    return logits if task.targets else answers.scores(task, logits)


def _scale(scores: Tensor) -> Tensor:
    """The magnitude of scores: regression values and log-likelihoods may be large, probabilities are not."""
    return scores.abs().clamp(min=1.0)


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / len(values)) if values else 0.0


def is_rounded(backbone: Backbone) -> bool:
    """Whether a backbone moves golden outputs so far that an upload also needs its `SubstituteProof`."""
    return backbone.precision in _TOLERANCES


def num_twins(backbone: Backbone, manifest: Manifest, outputs: Sequence[RowOutput]) -> int:
    """How many twins to run for outputs that `judge_golden` refuses without them: none if twins could not change that,
    as in float32, where rounding errors are negligible."""
    found = [vectors.recorded(manifest.task, output.logits) for output in outputs[:-1]]
    have_same_sizes = all(own.numel() == len(one.output) for own, one in zip(found, manifest.golden, strict=True))
    if not is_rounded(backbone) or not have_same_sizes:
        return 0
    most, compared = _largest_difference(manifest), _compared(backbone, manifest, _distances(manifest, found))
    return _NUM_TWINS if all(difference <= most for difference in compared) else 0


def create_twin(backbone: Backbone, artifact: Artifact, number: int) -> Artifact:
    """The adapter with every weight moved by one rounding, up or down at random; `number` is the seed."""
    generator = torch.Generator().manual_seed(number)
    # In the order of the parts, whatever the order in memory is, so that all releases draw the same twins.
    names = tensor_shapes(artifact.manifest.parts, backbone.config)
    tensors = {name: _moved(artifact.tensors[name], generator) for name in names}
    return Artifact(artifact.manifest, tensors, f"{artifact.digest}/twin-{number}")


def _moved(tensor: Tensor, generator: torch.Generator) -> Tensor:
    signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
    return tensor * (1 + _UNIT * signs)
