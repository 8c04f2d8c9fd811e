"""Whether an adapter computes what its maker's did, to the rounding of float32, on a server in any precision.

A coarser backbone moves golden outputs more than many a wrong tensor does. So an artifact also has its outputs for a
fixed row on the backbone's substitute (`peltier_backbone/substitute.py`), which no precision changes.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig, T5Config
from peltier_backbone.text.packing import Encoded
from torch import Tensor

from peltier_adapters.answers import terms
from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.artifact.label_tree import LabelTree, create_tree
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec.tasks import TaskSpec

# Fixed, as recorded outputs depend on them. Few tokens, because an upload waits for the row.
_IDS = (1, 2, 3, 4, 5, 6)
# The strings that a T5 scores, whatever its task.
_STRINGS = ((7,), (8, 9), (8, 10, 11))
# Of outputs below 1, of larger ones in proportion. docs/notes/reliability.md has the differences that were measured.
_MAX_DIFFERENCE = 1e-5


class SubstituteProof:
    """Runs adapters on the substitute of a backbone, on the calling thread. Safe from any thread."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone

    def run(self, artifact: Artifact) -> Tensor:
        """The adapter's outputs for the fixed row, flat and in float32."""
        backbone = self._backbone.substitute
        # A long prefix may leave fewer positions for a text.
        ids = _IDS[: artifact.manifest.task.max_length]
        # One of these ids is the padding of a RoBERTa, which gives it no position; recorded outputs count it.
        encoded = Encoded(ids, (0,) * len(ids), counts_padding=True)
        row = Row(encoded, self._banks.add(artifact), tree=_tree(backbone.config))
        output = forward(backbone, [row])[0].logits.flatten()
        backbone.forget_vocabulary()  # as large as the backbone's own, and used by an upload alone
        return output

    def judge(self, artifact: Artifact) -> list[str]:
        """Why the outputs are not the recorded ones; empty if they are, or if the artifact has none."""
        recorded = artifact.manifest.substitute_output
        if recorded is None:
            return []
        found: Sequence[float] = self.run(artifact).tolist()
        if len(found) != len(recorded):
            return [f"the substitute's output has {len(found)} values, the recorded one {len(recorded)}"]
        off = _differences(artifact.manifest.task, found, recorded)
        if all(difference <= _MAX_DIFFERENCE for difference in off):  # a NaN is not
            return []
        return [
            f"the adapter's weights are not those of the recorded outputs: on the backbone's substitute they differ by "
            f"{max(off):.2g}; {_MAX_DIFFERENCE:g} is allowed"
        ]

    @cached_property
    def _banks(self) -> Banks:
        return Banks(self._backbone.substitute)


def _differences(task: TaskSpec, found: Sequence[float], recorded: Sequence[float]) -> list[float]:
    if task.type == "sparse-embedding":
        pairs = [torch.tensor(values).view(-1, 2) for values in (found, recorded)]
        return [terms.relative_distance(*pairs)]
    return [abs(own - wanted) / max(1.0, abs(wanted)) for own, wanted in zip(found, recorded, strict=True)]


def _tree(config: BackboneConfig) -> LabelTree | None:
    if not isinstance(config, T5Config):
        return None
    return create_tree(config.start_token_id, config.eos_token_id, _STRINGS)
