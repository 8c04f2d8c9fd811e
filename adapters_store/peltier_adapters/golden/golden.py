"""An upload proves itself: the receiver re-runs the trainer's golden examples.

In float32 the recorded scores are reproduced to rounding in another order. In bfloat16 the distance to them depends on
the adapter, on how much it amplifies rounding errors, so that is measured: twins of the adapter (`twins.py`) answer the
same examples, and the recorded scores may be a few times as far away as the twins' are. What this accepts and refuses
is in docs/notes/reliability.md.
"""

import math
from collections.abc import Sequence

import torch
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded
from torch import Tensor

from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.artifact.label_tree import text_tree
from peltier_adapters.artifact.manifest import Golden, Manifest
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row, RowOutput
from peltier_adapters.errors import ArtifactError, InputError
from peltier_adapters.generation import text_answers as answers
from peltier_adapters.golden.inputs import encode_input
from peltier_adapters.golden.twins import UNIT, create_twin, num_twins
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.tasks import TaskSpec

# Half a unit of float32 rounding through a dozen layers stays far below this.
_EXACT = 1e-4
# The recorded scores differ from these also by the rounding of the backbone's weights, which all twins share.
_TIMES_THE_SCATTER = 5.0
# Beyond this five of the eight bits are lost, and a wrong adapter would be as near to the recorded scores as the right
# one. Nor is less than one rounding asked for, however well twins agree.
_MOST = 2.0**-3
# A difference that rounding alone can make: the golden and the bare row run in different slices of the batch.
_NOTHING = 1e-6


def golden_rows(backbone: Backbone, manifest: Manifest, resident: Resident) -> list[Row]:
    """The rows to run: every golden example with the adapter, then the shortest without its body.

    An `ArtifactError` says which golden input no task could take.
    """
    encoded = [_encode(backbone, manifest.task, number, golden) for number, golden in enumerate(manifest.golden)]
    trees = [None if golden.text is None else text_tree(golden.text, backbone) for golden in manifest.golden]
    short = _shortest(manifest)
    rows = [Row(one, resident, tree=tree) for one, tree in zip(encoded, trees, strict=True)]
    return [*rows, Row(encoded[short], resident, bare=True, tree=trees[short])]


def _shortest(manifest: Manifest) -> int:
    """The example that is cheapest to run twice."""
    lengths = [sum(map(len, golden.input)) for golden in manifest.golden]
    return lengths.index(min(lengths))


def _encode(backbone: Backbone, task: TaskSpec, number: int, golden: Golden) -> Encoded:
    try:
        return encode_input(backbone, task, golden.input)
    except InputError as error:
        raise ArtifactError([f"golden example {number}: {error}"]) from None


def judge_golden(
    backbone: Backbone, manifest: Manifest, outputs: Sequence[RowOutput], twins: Sequence[Sequence[RowOutput]] = ()
) -> list[str]:
    """Why the outputs of `golden_rows` do not prove the adapter; empty if they do. `twins` are the outputs of as many
    twins as `num_twins` says; an adapter that is proved without them needs none."""
    found, bare = [output.logits for output in outputs[:-1]], outputs[-1].logits
    reasons = _not_finite(found) or _differences(
        backbone, manifest, found, _tolerance(backbone, manifest, found, twins)
    )
    if not reasons and torch.allclose(found[_shortest(manifest)], bare, rtol=_NOTHING, atol=_NOTHING):
        reasons.append("the adapter changes nothing: a golden answer is the bare backbone's")
    return reasons


def check_golden(backbone: Backbone, artifact: Artifact) -> list[str]:
    """Load, run and judge in one step, for callers that own the device."""
    outputs = _run(backbone, artifact)
    reasons = judge_golden(backbone, artifact.manifest, outputs)
    if not reasons:
        return []
    twins = [_run(backbone, create_twin(artifact, number)) for number in range(num_twins(backbone))]
    return judge_golden(backbone, artifact.manifest, outputs, twins)


def _run(backbone: Backbone, artifact: Artifact) -> list[RowOutput]:
    return forward(backbone, golden_rows(backbone, artifact.manifest, Banks(backbone).add(artifact)))


def _not_finite(found: Sequence[Tensor]) -> list[str]:
    bad = [number for number, logits in enumerate(found) if not bool(torch.isfinite(logits).all())]
    return [f"golden example {number}: this server's output is not finite" for number in bad]


def _tolerance(
    backbone: Backbone, manifest: Manifest, found: Sequence[Tensor], twins: Sequence[Sequence[RowOutput]]
) -> float:
    if backbone.dtype == torch.float32:
        return _EXACT
    moved = [
        _distance(manifest.task, twin.logits, logits)
        for outputs in twins
        for twin, logits in zip(outputs[:-1], found, strict=True)
    ]
    # The unit comes first: beside a scatter that is no number, it is the smaller.
    return min(max(UNIT, _TIMES_THE_SCATTER * _rms(moved)), _MOST)


def _differences(backbone: Backbone, manifest: Manifest, found: Sequence[Tensor], tolerance: float) -> list[str]:
    task, golden = manifest.task, manifest.golden
    recorded = [torch.tensor(one.output) for one in golden]
    off = [_distance(task, logits, wanted) for logits, wanted in zip(found, recorded, strict=True)]
    # A scatter is known of all examples together, so it is compared with the difference of all together.
    joint = off if backbone.dtype == torch.float32 else [_rms(off)]
    if not all(one <= tolerance for one in joint):  # a recorded value beyond float32 makes it NaN
        return [
            f"golden example {number}: scores differ by {one:.2g} from the recorded ones; {tolerance:g} is allowed"
            for number, one in enumerate(off)
            if not one <= tolerance
        ]
    pairs = zip(found, recorded, strict=True)
    return [reason for number, pair in enumerate(pairs) for reason in _another_label(task, number, *pair, tolerance)]


def _another_label(task: TaskSpec, number: int, logits: Tensor, recorded: Tensor, tolerance: float) -> list[str]:
    got, wanted = int(logits.argmax()), int(recorded.argmax())
    if task.type != "classification" or got == wanted:
        return []
    scores = _judged(task, recorded)
    top = scores.topk(2).values
    if float(top[0] - top[1]) <= 2 * tolerance * float(_scale(scores).max()):
        return []
    return [f"golden example {number}: the label is {task.labels[got]!r}, not the recorded one"]


def _distance(task: TaskSpec, logits: Tensor, wanted: Tensor) -> float:
    """The largest difference of two answers' scores, relative to those wanted where they are large."""
    scores = _judged(task, wanted)
    return float(((_judged(task, logits) - scores).abs() / _scale(scores)).max())


def _judged(task: TaskSpec, logits: Tensor) -> Tensor:
    # Log-likelihoods on T5: their rounding grows with them, and probabilities among targets would hide or blow it up.
    return logits if task.targets else answers.scores(task, logits)


def _scale(scores: Tensor) -> Tensor:
    """A regression value or a log-likelihood may be large; probabilities never are."""
    return scores.abs().clamp(min=1.0)


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / len(values)) if values else 0.0
