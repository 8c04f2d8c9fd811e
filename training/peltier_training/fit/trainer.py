"""The Hugging Face Trainer for packed rows."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from peltier_backbone.decoding.targets import Targets
from torch import nn
from torch.utils.data import Dataset, Sampler
from transformers import EvalPrediction, Trainer, TrainerState, TrainingArguments

from peltier_training.config.run import Run
from peltier_training.data.dataset import EncodedRows, QuerySampler, TextRows, collate, collate_texts
from peltier_training.errors import TrainingError
from peltier_training.evaluate import metrics
from peltier_training.fit.arguments import create_arguments
from peltier_training.fit.callbacks import Patience, ValidationInterval, is_over
from peltier_training.fit.checkpoint import find_checkpoint, remove_checkpoints
from peltier_training.fit.objective import Objective, TextObjective, create_objective
from peltier_training.fit.progress import TrainingProgress
from peltier_training.models.model import HeadedAdapter, TextAdapter, TrainableAdapter

Judge = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class History:
    """`log` is the Trainer's, with an entry for every fiftieth of the steps and for every validation, including those
    before a resumption. `seconds` is the time of `epochs` of training in this process, without validation."""

    log: Sequence[Mapping[str, float]]
    best_step: int | None
    seconds: float
    epochs: float


class RowTrainer(Trainer):
    """Draws the rows of a ranking query by query."""

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> Sampler[int] | None:
        dataset = self.train_dataset if train_dataset is None else train_dataset
        if isinstance(dataset, EncodedRows) and dataset.queries is not None:
            return QuerySampler(dataset.queries, self.args.seed)
        sampler: Sampler[int] | None = super()._get_train_sampler(train_dataset)
        return sampler


class JudgedTrainer(RowTrainer):
    """Evaluates by calling `judge`, which measures the model as it stands on rows of its own."""

    def __init__(self, *, judge: Judge, **options: Any) -> None:
        self._judge = judge
        nothing: Dataset[Any] = TextRows([])  # the Trainer requires a dataset to evaluate on
        super().__init__(eval_dataset=nothing, **options)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Each process measures all rows."""
        start = time.perf_counter()
        found = {f"eval_{name}": value for name, value in self._judge().items()}
        found["eval_runtime"] = round(time.perf_counter() - start, 4)
        self.log(found)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found


class AdapterTrainer(RowTrainer):
    """Trains a `TrainableAdapter`; checkpoints hold only the adapter and its optimizer."""

    def __init__(self, *, objective: Objective, **options: Any) -> None:
        self._objective = objective
        super().__init__(**options)

    @property
    def adapter(self) -> TrainableAdapter:
        """The model without torchrun's wrapper."""
        assert isinstance(self.model, TrainableAdapter)
        return self.model

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Exclude norms, which the Trainer does not recognise by our names, as it excludes biases."""
        names: list[str] = super().get_decay_parameter_names(model)
        return [name for name in names if not name.split(".")[-1].startswith("norm/")]

    def compute_loss(  # type: ignore[override]
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        read = self._read(inputs)
        logits = model(*read)
        loss = self._objective.task_loss(logits, inputs["labels"])
        if model.training and self.adapter.is_mixture and self._objective.consistency > 0:
            apart = self._objective.divergence(logits, model(*read), [len(row) for row in inputs["rows"]])
            loss = loss + self._objective.consistency * apart
        return (loss, {"logits": logits}) if return_outputs else loss

    def _read(self, inputs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments of the model."""
        return (self.adapter.backbone.pack(inputs["rows"]),)


class TokenTrainer(JudgedTrainer, AdapterTrainer):
    """Trains a head of tokens. `judge` measures the adapter in the form that is served."""


class TextTrainer(JudgedTrainer, AdapterTrainer):
    """Trains on target texts. `judge` measures the adapter in the form that is served."""

    def _read(self, inputs: dict[str, Any]) -> tuple[Any, ...]:
        backbone = self.adapter.backbone
        return backbone.pack(inputs["rows"]), Targets.create(inputs["targets"], None, backbone.device)


def fit(run: Run, model: HeadedAdapter, rows: EncodedRows, validation: EncodedRows) -> History:
    """Train on `rows` and leave the best epoch on `validation` in `model`."""
    checkpoint = _find_start(run, model)

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        logits = np.asarray(prediction.predictions)
        if not np.isfinite(logits).all():
            raise diverged(run)
        return metrics.compute(run.task_type, logits, np.asarray(prediction.label_ids))

    trainer = AdapterTrainer(
        objective=create_objective(run, float(model.settings.get("consistency", 0.0))),
        model=model,
        args=_arguments(run, checkpoint),
        data_collator=collate,
        train_dataset=rows,
        eval_dataset=validation,
        compute_metrics=compute,
    )
    return conduct(run, trainer, checkpoint)


def fit_tokens(run: Run, model: HeadedAdapter, rows: EncodedRows, judge: Judge) -> History:
    """`fit` for a head of tokens: `judge` measures the answers, which are not the logits of single rows."""
    checkpoint = _find_start(run, model)
    trainer = TokenTrainer(
        objective=create_objective(run, float(model.settings.get("consistency", 0.0))),
        judge=judge,
        model=model,
        args=_arguments(run, checkpoint),
        data_collator=collate,
        train_dataset=rows,
    )
    return conduct(run, trainer, checkpoint)


def fit_text(run: Run, model: TextAdapter, rows: TextRows, judge: Judge) -> History:
    """Train on `rows` and leave the best epoch, as measured by `judge`, in `model`."""
    checkpoint = _find_start(run, model)
    trainer = TextTrainer(
        objective=TextObjective(float(model.settings.get("consistency", 0.0))),
        judge=judge,
        model=model,
        args=_arguments(run, checkpoint),
        data_collator=collate_texts,
        train_dataset=rows,
    )
    return conduct(run, trainer, checkpoint)


def diverged(run: Run) -> TrainingError:
    """The error for outputs that are not finite."""
    return TrainingError(f"training diverged at learning rate {run.learning_rate:g}; try a lower one")


def _find_start(run: Run, model: TrainableAdapter) -> str | None:
    """The checkpoint to continue from. A new run removes earlier checkpoints."""
    if run.resume:
        return str(find_checkpoint(run.directory, model))
    remove_checkpoints(run.directory)
    return None


def conduct(run: Run, trainer: Trainer, checkpoint: str | None = None) -> History:
    """Train to the end, from `checkpoint` if given, with progress on stderr."""
    for callback in (ValidationInterval(run), Patience(run)):
        trainer.add_callback(callback)
    progress = TrainingProgress(run)
    progress.replace_prints(trainer)
    logging.getLogger("transformers.trainer_utils").addFilter(_is_no_guess_about_times)
    try:
        trainer.train(resume_from_checkpoint=checkpoint)
    finally:
        progress.close()
    return _read_history(trainer, checkpoint)


def _is_no_guess_about_times(record: logging.LogRecord) -> bool:
    """Checkpoints of epochs shorter than a second make transformers doubt the file system's times."""
    return not record.getMessage().startswith("mtime may not be reliable")


def _read_history(trainer: Trainer, checkpoint: str | None) -> History:
    state = trainer.state
    first = int(Path(checkpoint).name.removeprefix("checkpoint-")) if checkpoint else 0
    own = [entry for entry in state.log_history if entry["step"] > first]
    validating = sum(entry.get("eval_runtime", 0.0) for entry in own)
    return History(
        log=state.log_history,
        best_step=state.best_global_step,
        seconds=max(sum(entry.get("train_runtime", 0.0) for entry in own) - validating, 0.0),
        epochs=(state.epoch or 0.0) * (1 - first / state.global_step),
    )


def _arguments(run: Run, checkpoint: str | None) -> TrainingArguments:
    return create_arguments(
        run,
        num_train_epochs=_num_epochs(run, checkpoint),
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model=run.metric,
        greater_is_better=run.metric not in metrics.LOWER_IS_BETTER,
        ddp_find_unused_parameters=False,
    )


def _num_epochs(run: Run, checkpoint: str | None) -> int:
    """The run's epochs, or those until `checkpoint` if the run stopped early there."""
    if checkpoint is not None:
        state = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
        if is_over(run, state.log_history):
            return round(state.epoch or 0)
    return run.epochs
