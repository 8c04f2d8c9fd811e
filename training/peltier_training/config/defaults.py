"""Default hyper-parameters of a run, by its method, backbone and number of training rows.

docs/results.md describes how they were found and compares them with the best of a grid.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from peltier_adapters.presets.baselines import find_method
from peltier_adapters.spec.tasks import TOKEN_TYPES
from peltier_backbone.checkpoint.config import BackboneConfig

from peltier_training.config.run import Run
from peltier_training.processes import num_processes

_MAX_SMALL_BATCH_ROWS = 2_000  # fewer training rows get small batches, for more steps in the same epochs
_SMALL_BATCH, _BATCH = 16, 32
_MIN_STEPS = 300
_MIN_EPOCHS = 5
_PATIENCE = 8
_MAX_VALIDATIONS = 20
_MIN_EVAL_ROWS = 500
# The papers' narrowest encoder is BERT-base. Narrower encoders learn little at its learning rates.
_PUBLISHED_WIDTH = 768
_NARROW_FACTOR, _MAX_NARROW_RATE = 6, 3e-3


def fill_in(run: Run, config: BackboneConfig, num_rows: int) -> Run:
    """`run` with a value for every hyper-parameter that is None, for `num_rows` training rows.

    A run without `epochs` gets as many as 300 steps need, and at least 5. It stops early, validates at most 20 times,
    and chooses its epoch on at most as many inputs as it has training rows, or 500.
    """
    numbers = run.hyperparameters
    batch_size = numbers.batch_size or (_SMALL_BATCH if num_rows < _MAX_SMALL_BATCH_ROWS else _BATCH)
    rate = numbers.learning_rate or _learning_rate(run.preset, config)
    dropout = config.dropout if numbers.backbone_dropout is None else numbers.backbone_dropout
    filled = replace(numbers, batch_size=batch_size, learning_rate=rate, backbone_dropout=dropout)
    if numbers.epochs is None:
        epochs = _epochs(math.ceil(num_rows / (batch_size * num_processes())))
        filled = replace(
            filled,
            epochs=epochs,
            patience=numbers.patience or _PATIENCE,
            eval_rows=numbers.eval_rows or max(num_rows, _MIN_EVAL_ROWS),
            validation_interval=math.ceil(epochs / _MAX_VALIDATIONS),
        )
    return replace(run, hyperparameters=filled, overrides={**run.overrides, **_pooling(run, config)})


def _learning_rate(preset: str, config: BackboneConfig) -> float:
    """The published rate of the method. On a narrow encoder it is multiplied by six, up to 3e-3."""
    published = find_method(preset).variant(config).learning_rate
    if config.generates or config.hidden_size >= _PUBLISHED_WIDTH:
        return published
    return max(published, min(_NARROW_FACTOR * published, _MAX_NARROW_RATE))


def _pooling(run: Run, config: BackboneConfig) -> Mapping[str, str]:
    """A head of every token for the types that have one. Else the pooling that a sentence encoder was trained with; it
    was trained on single texts, so pairs keep the family's pooling."""
    if run.task_type in TOKEN_TYPES:
        return {"pooling": "tokens"} if run.overrides.get("pooling", "auto") == "auto" else {}
    if run.task_type == "embedding":
        return _embedding_head(run, config)
    if config.generates or config.sentence_pooling is None or len(run.data.text_columns) > 1:
        return {}
    return {} if run.overrides.get("pooling", "auto") != "auto" else {"pooling": config.sentence_pooling}


def _embedding_head(run: Run, config: BackboneConfig) -> Mapping[str, str]:
    """By default the pooling of a sentence encoder, or the mean over tokens."""
    pooling = run.overrides.get("pooling", "auto")
    if pooling == "auto":
        pooling = config.sentence_pooling or "mean"
    return {"pooling": pooling, "head_projection": "true" if run.embedding.projection else "false"}


def _epochs(steps_per_epoch: int) -> int:
    return max(math.ceil(_MIN_STEPS / steps_per_epoch), _MIN_EPOCHS)
