"""Golden examples: a server runs them for each upload, and compares its outputs with the trainer's.

The recorded outputs are those of a float32 backbone. Each output may differ by the tolerance of the server's precision:

- float32: only the order of additions differs. Each of some 10^3 roundings of 2^-24 in a row of layers moves a state by
  at most 2^-24 of its size, 6e-5 in all; 1e-4 is the next power of ten.
- bfloat16 and int8: both keep 8 bits, so a rounding moves a state by 2^-8 of its size. The roundings of about 50
  sub-layers, of inputs and weights, add up as a random walk: sqrt(50) * 2^-8 = 0.028. An adapter that changes every map
  amplifies that, at most ten times in 2,132 random ones of all presets; 2^-2 is the least power of two that accepts all
  but one of them.

Such a tolerance proves the backbone and its kernels, not the weights: many a wrong tensor moves the outputs less than
rounding does. `identity.py` finds it. Nothing else vouches for the weights of an artifact without an output on the
substitute, so its outputs may differ by half as much. docs/notes/reliability.md has what was measured.
"""

from collections.abc import Sequence

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
from peltier_adapters.spec.tasks import TaskSpec

_TOLERANCES = {"float32": 1e-4, "bfloat16": 2.0**-2, "int8": 2.0**-2}
# Rounding alone makes this difference, because the golden row and the bare row run in different groups of the batch.
_ROUNDING = 1e-6


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


def judge_golden(backbone: Backbone, manifest: Manifest, outputs: Sequence[RowOutput]) -> list[str]:
    """Why the outputs of `golden_rows` are not the recorded ones; empty if they are."""
    *found, bare = [vectors.recorded(manifest.task, output.logits) for output in outputs]
    reasons = _not_finite(found) or _wrong_terms(backbone, manifest) or _differences(backbone, manifest, found)
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
    """Like `judge_golden`, for an artifact that a server has accepted, maybe in another precision, in which a small
    effect of its weights may be lost."""
    found = [vectors.recorded(manifest.task, output.logits) for output in outputs[:-1]]
    return _not_finite(found) or _differences(backbone, manifest, found)


def check_golden(backbone: Backbone, artifact: Artifact) -> list[str]:
    """Loads the artifact, runs its golden examples and judges them, for callers that own the device."""
    if is_rounded(backbone) and (reasons := SubstituteProof(backbone).judge(artifact)):
        return reasons
    rows = golden_rows(backbone, artifact.manifest, Banks(backbone).add(artifact))
    return judge_golden(backbone, artifact.manifest, forward(backbone, rows))


def _not_finite(found: Sequence[Tensor]) -> list[str]:
    bad = [number for number, logits in enumerate(found) if not bool(torch.isfinite(logits).all())]
    return [f"golden example {number}: this server's output is not finite" for number in bad]


def _differences(backbone: Backbone, manifest: Manifest, found: Sequence[Tensor]) -> list[str]:
    recorded = [torch.tensor(example.output) for example in manifest.golden]
    if reasons := _other_sizes([own.numel() for own in found], [own.numel() for own in recorded]):
        return reasons
    off = [distance(manifest.task, own, wanted.view_as(own)) for own, wanted in zip(found, recorded, strict=True)]
    has_proof = manifest.substitute_output is not None or not is_rounded(backbone)
    tolerance = _TOLERANCES[backbone.precision] / (1 if has_proof else 2)
    where = f" in {backbone.precision}" if is_rounded(backbone) else ""
    return [
        f"golden example {number}: scores differ by {difference:.2g} from the recorded ones; "
        f"{tolerance:g} is allowed{where}"
        for number, difference in enumerate(off)
        if not difference <= tolerance  # a recorded value beyond float32 gives NaN
    ]


def _other_sizes(found: Sequence[int], recorded: Sequence[int]) -> list[str]:
    """Why outputs of these numbers of values cannot be compared: another number of tokens."""
    return [
        f"golden example {number}: this server's output has {own} values, the recorded one {wanted}"
        for number, (own, wanted) in enumerate(zip(found, recorded, strict=True))
        if own != wanted
    ]


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
    # Regression values and log-likelihoods may be large, probabilities are not.
    return float(((_judged(task, logits) - scores).abs() / scores.abs().clamp(min=1.0)).max())


def _judged(task: TaskSpec, logits: Tensor) -> Tensor:
    # On T5 log-likelihoods, because probabilities among the targets would hide or amplify rounding errors.
    return logits if task.targets else answers.scores(task, logits)


def is_rounded(backbone: Backbone) -> bool:
    """Whether a backbone moves golden outputs so far that an upload also needs its `SubstituteProof`."""
    return backbone.precision != "float32"
