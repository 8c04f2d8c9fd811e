"""An artifact's metrics on labelled data, by the server's own forward."""

from collections.abc import Sequence

import torch
from peltier_adapters.artifact import Artifact
from peltier_adapters.bank import Banks
from peltier_adapters.batch import Row, encode_input, forward
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_training import metrics
from peltier_training.data import Example
from peltier_training.labels import Labels

_BATCH_ROWS = 32


def predict(backbone: Backbone, artifact: Artifact, examples: Sequence[Example]) -> Tensor:
    """Logits [rows, labels] of `examples`."""
    resident = Banks(backbone).add(artifact)
    task = artifact.manifest.task
    rows = [Row(encode_input(backbone, task, example.input), resident) for example in examples]
    batches = [rows[first : first + _BATCH_ROWS] for first in range(0, len(rows), _BATCH_ROWS)]
    return torch.stack([output.logits for batch in batches for output in forward(backbone, batch)])


def evaluate(backbone: Backbone, artifact: Artifact, examples: Sequence[Example]) -> dict[str, float]:
    """The metrics of the artifact's task type."""
    task = artifact.manifest.task
    targets = Labels(task.type, task.labels).targets(examples)
    return metrics.compute(task.type, predict(backbone, artifact, examples).numpy(), targets.numpy())
