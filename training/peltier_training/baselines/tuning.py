"""Tuning of a whole backbone on one task: the model, its batches and its metrics."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peltier_adapters.presets.baselines import BASELINES
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.load import load_backbone
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.tokenizer import Tokenizer
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel, T5ForConditionalGeneration

from peltier_training.baselines.tuned_model import (
    Subspace,
    TunedEncoder,
    TunedPairs,
    TunedT5,
    create_body,
    dropout_rates,
    pooler_option,
)
from peltier_training.config.run import Run
from peltier_training.data.dataset import IGNORED, EncodedRows, TextRow, flatten, pad_rows, pad_texts
from peltier_training.data.examples import Example
from peltier_training.data.rows import head_rows, text_rows
from peltier_training.errors import NotFiniteError
from peltier_training.evaluate.adapters import read_inputs
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.evaluate.texts import evaluate_texts
from peltier_training.fit.objective import Objective, TextObjective, create_objective
from peltier_training.fit.trainer import diverged

_MAX_ROWS = 64
_weights = shutil.ignore_patterns("*.safetensors*", "*.bin")


@dataclass(frozen=True)
class _Reader:
    """What reading texts needs, without the frozen weights, which nothing runs."""

    config: BackboneConfig
    tokenizer: Tokenizer


class HeadTuning:
    """An encoder with a head: its `rows` are a dataset for `collate`, which gives the inputs of `model` and the
    `labels` of `objective`."""

    def __init__(self, run: Run, backbone: Backbone, task: TaskSpec) -> None:
        baseline, numbers = BASELINES[run.preset], run.hyperparameters
        settings = baseline.settings(run.overrides, backbone.config)
        spec = baseline.head(settings, backbone.config, outputs=run.num_outputs(task.labels, backbone.config))
        checkpoint = find_checkpoint(run.backbone)
        config = AutoConfig.from_pretrained(checkpoint)
        pooler = pooler_option(config, pooled=spec.pooling == "pooler")
        if run.backbone_dropout != backbone.config.dropout:
            config.update(dropout_rates(config, run.backbone_dropout))
        encoder = AutoModel.from_pretrained(checkpoint, config=config, dtype=torch.float32, **pooler)
        body = create_body(encoder, settings, numbers.seed)
        kind = TunedPairs if task.type == "embedding" else TunedEncoder
        self.model: nn.Module = kind(body, spec, backbone, run.head_dropout).to(backbone.device)
        self.objective: Objective = create_objective(run, 0.0)
        self._run, self._task, self.device = run, task, backbone.device
        self._reader = _Reader(backbone.config, backbone.tokenizer)

    def rows(self, examples: Sequence[Example]) -> EncodedRows:
        return head_rows(self._reader, self._task, examples)

    def collate(self, items: Sequence[Any]) -> dict[str, Any]:
        targets = torch.stack([target for _, target in items])
        return {**pad_rows(flatten([row for row, _ in items]), self._reader.config), "labels": targets}

    @torch.inference_mode()
    def evaluate(self, examples: Sequence[Example]) -> Evaluation:
        rows, judge = read_inputs(self._reader, self._task, examples)
        return judge(self._logits(rows))

    def _logits(self, rows: Sequence[Encoded]) -> Sequence[Tensor]:
        """For each row [outputs], or those of all its tokens [tokens, outputs]."""
        self.model.eval()
        outputs = []
        for first in range(0, len(rows), _MAX_ROWS):
            padded = pad_rows(rows[first : first + _MAX_ROWS], self._reader.config)
            outputs.append(self.model(**{name: t.to(self.device) for name, t in padded.items()}).cpu())
        logits = torch.cat(outputs)
        if not bool(logits.isfinite().all()):
            raise diverged(self._run)
        if self._task.reads_tokens:
            return torch.split(logits, [len(row) for row in rows])
        return logits.flatten(0, -2).unbind()


class TextTuning:
    """A T5, evaluated as a backbone of the server without adapters."""

    def __init__(self, run: Run, backbone: Backbone, task: TaskSpec) -> None:
        settings, numbers = BASELINES[run.preset].settings(run.overrides, backbone.config), run.hyperparameters
        self._checkpoint = find_checkpoint(run.backbone)
        model = T5ForConditionalGeneration.from_pretrained(
            self._checkpoint, dtype=torch.float32, dropout_rate=run.backbone_dropout
        )
        model.decoder.dropout.p = numbers.dropout  # before the output layer, and of the decoder's embeddings
        self._body = create_body(model, settings, numbers.seed)
        self.model: nn.Module = TunedT5(self._body).to(backbone.device)
        self.objective: Objective = TextObjective(0.0)
        self._run, self._task, self.device = run, task, backbone.device
        self._reader = _Reader(backbone.config, backbone.tokenizer)

    def rows(self, examples: Sequence[Example]) -> list[TextRow]:
        return text_rows(self._reader, self._task, (), examples)

    def collate(self, items: Sequence[TextRow]) -> dict[str, Any]:
        padded = pad_texts(items, self._reader.config)
        return {**padded, "labels": padded["label_grid"][padded["label_grid"] != IGNORED]}

    def evaluate(self, examples: Sequence[Example]) -> Evaluation:
        with TemporaryDirectory() as folder:
            shutil.copytree(self._checkpoint, folder, dirs_exist_ok=True, ignore=_weights)
            self._save(folder)
            backbone = load_backbone(str(Path(folder)), device=self.device.type)
            try:
                return evaluate_texts(backbone, self._task, None, examples)
            except NotFiniteError:
                raise diverged(self._run) from None

    def _save(self, folder: str) -> None:
        tuned = self._body.tuned() if isinstance(self._body, Subspace) else self._body
        assert isinstance(tuned, PreTrainedModel)
        if not all(bool(tensor.isfinite().all()) for tensor in tuned.parameters()):
            raise diverged(self._run)
        tuned.save_pretrained(folder)
