"""An artifact's metrics on labelled data."""

from collections.abc import Sequence

import torch
from peltier_adapters.artifact import Artifact
from peltier_adapters.bank import Banks
from peltier_adapters.inputs import encode_input
from peltier_adapters.row import Row
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_training import metrics
from peltier_training.data import Example
from peltier_training.labels import Labels
from peltier_training.scores import score_rows
from peltier_training.text_evaluation import judge


def predict(backbone: Backbone, artifact: Artifact, examples: Sequence[Example]) -> Tensor:
    """Logits [rows, labels] of `examples`."""
    resident, task = Banks(backbone).add(artifact), artifact.manifest.task
    rows = [Row(encode_input(backbone, task, example.input), resident) for example in examples]
    return torch.stack(score_rows(backbone, rows))


def evaluate(backbone: Backbone, artifact: Artifact, examples: Sequence[Example]) -> dict[str, float]:
    """The metrics of the artifact's task type; on T5 its `loss` too."""
    task = artifact.manifest.task
    if backbone.config.generates:
        return judge(backbone, task, Banks(backbone).add(artifact), examples)
    targets = Labels(task.type, task.labels).targets(examples)
    return metrics.compute(task.type, predict(backbone, artifact, examples).numpy(), targets.numpy())
