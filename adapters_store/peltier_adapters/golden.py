"""An upload proves itself: the receiver re-runs the trainer's golden examples."""

from collections.abc import Sequence

import torch
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded
from torch import Tensor

from peltier_adapters import answers
from peltier_adapters.artifact import Artifact
from peltier_adapters.bank import Banks, Resident
from peltier_adapters.batch import forward
from peltier_adapters.errors import ArtifactError, InputError
from peltier_adapters.inputs import encode_input
from peltier_adapters.label_tree import text_tree
from peltier_adapters.manifest import Golden, Manifest
from peltier_adapters.row import Row, RowOutput
from peltier_adapters.task_spec import TaskSpec

# Half a unit of float32 rounding through a dozen layers stays far below the first; bfloat16 has 8 bits.
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
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


def judge_golden(backbone: Backbone, manifest: Manifest, outputs: Sequence[RowOutput]) -> list[str]:
    """Why the outputs of `golden_rows` do not prove the adapter; empty if they do."""
    found, bare = [output.logits for output in outputs[:-1]], outputs[-1].logits
    tolerance = TOLERANCES[backbone.dtype]
    reasons = [
        reason
        for number, (golden, logits) in enumerate(zip(manifest.golden, found, strict=True))
        for reason in _differences(manifest.task, number, golden, logits, tolerance)
    ]
    if not reasons and torch.allclose(found[_shortest(manifest)], bare, rtol=_NOTHING, atol=_NOTHING):
        reasons.append("the adapter changes nothing: a golden answer is the bare backbone's")
    return reasons


def check_golden(backbone: Backbone, artifact: Artifact) -> list[str]:
    """Load, run and judge in one step, for callers that own the device."""
    rows = golden_rows(backbone, artifact.manifest, Banks(backbone).add(artifact))
    return judge_golden(backbone, artifact.manifest, forward(backbone, rows))


def _differences(task: TaskSpec, number: int, golden: Golden, logits: Tensor, tolerance: float) -> list[str]:
    recorded = torch.tensor(golden.output)
    if not bool(torch.isfinite(logits).all()):
        return [f"golden example {number}: this server's output is not finite"]
    # Log-likelihoods on T5: their rounding grows with them, and probabilities among targets would hide or blow it up.
    wanted, got = (recorded, logits) if task.targets else (answers.scores(task, recorded), answers.scores(task, logits))
    scale = wanted.abs().clamp(min=1.0)  # a regression value may be large; probabilities never are
    off = float(((got - wanted).abs() / scale).max())
    if not off <= tolerance:  # a recorded value beyond float32 makes it NaN
        return [f"golden example {number}: scores differ by {off:.2g} from the recorded ones; {tolerance:g} is allowed"]
    if task.type == "classification" and int(got.argmax()) != int(wanted.argmax()):
        top = wanted.topk(2).values
        if float(top[0] - top[1]) > 2 * tolerance * float(scale.max()):
            return [f"golden example {number}: the label is {task.labels[int(got.argmax())]!r}, not the recorded one"]
    return []
