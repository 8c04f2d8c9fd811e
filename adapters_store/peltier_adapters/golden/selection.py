"""Chooses golden inputs that react to every tensor of an adapter."""

from collections.abc import Sequence

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from torch import Tensor

from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.artifact.manifest import TaskInput
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.golden.golden import distance
from peltier_adapters.golden.proof import Candidate
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Banks

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
