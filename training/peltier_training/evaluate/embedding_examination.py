"""Evaluation of embeddings on pairs of texts."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from peltier_adapters.batch.row import Row
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Resident
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_training.data.examples import Example
from peltier_training.data.labels import Labels
from peltier_training.data.pairs import inputs_of
from peltier_training.evaluate.embedding_metrics import answers, embedding
from peltier_training.evaluate.evaluation import Evaluation, mean_gates
from peltier_training.evaluate.scores import run_rows


def examine(
    backbone: Backbone, task: TaskSpec, resident: Resident, examples: Sequence[Example], *, record_gates: bool = False
) -> Evaluation:
    """The metrics, and the cosine of each pair with a score, or the rank of the second text of each other pair."""
    rows = [Row(encode_input(backbone, task, text), resident) for text in inputs_of(task, examples)]
    outputs = run_rows(backbone, rows, record_gates=record_gates)
    vectors = torch.stack([output.logits for output in outputs])
    pairs = vectors.view(len(examples), 2, vectors.shape[-1])
    return replace(judge_pairs(task, pairs, examples), gates=mean_gates(outputs))


def judge_pairs(task: TaskSpec, vectors: Tensor, examples: Sequence[Example]) -> Evaluation:
    """The evaluation of the outputs [pairs, 2, size] of all pairs."""
    targets = Labels(task.type, task.labels).targets(examples).numpy()
    gold = targets if targets.ndim == 1 else np.ones(len(targets), np.int64)
    return Evaluation(
        metrics=embedding(vectors.numpy(), targets),
        inputs=[example.input for example in examples],
        gold=gold.tolist(),
        found=answers(vectors.numpy(), targets).tolist(),
        scores=vectors,
    )
