"""What a run takes where nobody gave a number: by its method, its backbone and its training rows.

How the numbers were found, and how far they are from the best of a grid, is in docs/results.md.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from peltier_adapters.presets.baselines import find_method
from peltier_backbone.config import BackboneConfig, BertConfig

from peltier_training.config.run import Run
from peltier_training.ranks import num_processes

_FEW_ROWS = 2_000  # below it small batches make more steps of the same passes
_SMALL_BATCH, _BATCH = 16, 32
_MIN_STEPS = 300
_MIN_EPOCHS = 5
_PATIENCE = 8
_MAX_VALIDATIONS = 20
_MIN_EVAL_ROWS = 500
# The papers' narrowest encoder is BERT-base. Narrower ones learn little at its rates.
_PUBLISHED_WIDTH = 768
_NARROW_FACTOR, _MAX_NARROW_RATE = 6, 3e-3


def fill_in(run: Run, config: BackboneConfig, num_rows: int) -> Run:
    """`run` with a value for every number that is left open, for `num_rows` of training on the backbone of `config`.

    Epochs are as many as make 300 steps, and at least 5. A run without `epochs` also stops early, validates at most
    20 times, and chooses its epoch on no more inputs than it has training rows, or 500.
    """
    numbers = run.hyperparameters
    batch_size = numbers.batch_size or (_SMALL_BATCH if num_rows < _FEW_ROWS else _BATCH)
    rate = numbers.learning_rate or _learning_rate(run.preset, config)
    filled = replace(numbers, batch_size=batch_size, learning_rate=rate)
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
    """The published rate of the method; on a narrow encoder six times as much, but not raised beyond 3e-3."""
    published = find_method(preset).variant(config).learning_rate
    if config.generates or config.hidden_size >= _PUBLISHED_WIDTH:
        return published
    return max(published, min(_NARROW_FACTOR * published, _MAX_NARROW_RATE))


def _pooling(run: Run, config: BackboneConfig) -> Mapping[str, str]:
    """The pooling that a sentence encoder was trained with, for single texts; it was never trained on pairs, and pairs
    have the family's."""
    if not isinstance(config, BertConfig) or config.sentence_pooling is None or len(run.data.text_columns) > 1:
        return {}
    return {} if run.overrides.get("pooling", "auto") != "auto" else {"pooling": config.sentence_pooling}


def _epochs(steps_per_epoch: int) -> int:
    return max(math.ceil(_MIN_STEPS / steps_per_epoch), _MIN_EPOCHS)
