"""The Hugging Face Trainer for packed rows of an adapter."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peltier_backbone.decoding.targets import Targets
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import Dataset, Sampler
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainerState, TrainingArguments

from peltier_training.config.run import LOWER_IS_BETTER, Run
from peltier_training.data.dataset import EncodedRows, QuerySampler, TextRow, collate, collate_texts
from peltier_training.errors import TrainingError
from peltier_training.evaluate import metrics
from peltier_training.fit.callbacks import ProgressLines, Validations
from peltier_training.fit.checkpoint import find_checkpoint, remove_checkpoints
from peltier_training.fit.objective import Objective, TextObjective, create_objective
from peltier_training.fit.passes import PassMemory, Size
from peltier_training.fit.schedule import has_converged, is_best, is_over, rate_factor, why_ended
from peltier_training.models.model import HeadedAdapter, TrainableAdapter
from peltier_training.models.sources import Stream

_LOG_INTERVAL = 0.02  # between entries of the log, as a fraction of all steps
_EVAL_BATCH = 64  # rows; takes 0.87 of the CPU time of 16, and larger ones gain nothing
Judge = Callable[[], dict[str, float]]


def create_arguments(run: Run, **own: Any) -> TrainingArguments:
    numbers = run.hyperparameters
    arguments = TrainingArguments(
        output_dir=str(run.directory),
        learning_rate=run.learning_rate,
        per_device_train_batch_size=run.batch_size,
        per_device_eval_batch_size=_EVAL_BATCH,
        warmup_steps=run.warmup,
        weight_decay=numbers.weight_decay,
        seed=numbers.seed,
        eval_strategy="epoch",
        logging_strategy="steps",
        logging_steps=_LOG_INTERVAL,
        remove_unused_columns=False,
        label_names=["labels"],
        dataloader_pin_memory=False,
        use_cpu=run.device == "cpu",
        **{"report_to": ["tensorboard"] if run.writes_events else [], **own},
    )
    # One process uses one device, because DataParallel would split the packed rows.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


@dataclass(frozen=True)
class History:
    """`log` is the Trainer's, with an entry for every fiftieth of the steps and for every validation, including those
    before a resumption. `ending` is the reason for its end, and `has_converged` tells whether the reason is that the
    validation stopped improving. `seconds` is the time of `epochs` of training in this process, without validation."""

    log: Sequence[Mapping[str, float]]
    best_step: int | None
    ending: str
    has_converged: bool
    seconds: float
    epochs: float


class RunTrainer(Trainer):
    """Draws the rows in an order of the run's seed, those of a ranking query by query, and has the learning rates and
    the best validation of `schedule`."""

    def __init__(self, *, run: Run, **options: Any) -> None:
        self._run = run
        super().__init__(**options)

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        """The learning rates of `schedule.rate_factor`."""
        chosen, warmup = optimizer or self.optimizer, self.args.get_warmup_steps(num_training_steps)
        assert chosen is not None, "the Trainer creates it first"
        self.lr_scheduler = LambdaLR(
            chosen, lambda step: rate_factor(self._run, self.state.log_history, step, warmup, num_training_steps)
        )
        return self.lr_scheduler

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Whether the validation that was just logged is the best one. The Trainer's keeps the first of equal ones."""
        if found := is_best(self._run, self.state.log_history):
            self.state.best_metric = metrics[f"eval_{self._run.metric}"]
            self.state.best_global_step = self.state.global_step
        return found

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> Sampler[int] | None:
        dataset: Any = self.train_dataset if train_dataset is None else train_dataset
        queries = dataset.queries if isinstance(dataset, EncodedRows) else None
        # Without queries each row is its own. The Trainer's sampler takes its seed from torch's global generator.
        return QuerySampler(queries or range(len(dataset)), self.args.seed)


class JudgedTrainer(RunTrainer):
    """Evaluates by calling `judge`, which measures the model as it stands on rows of its own. `eval_dataset` has the
    same rows if `judge` does not find their loss, else none."""

    def __init__(self, *, judge: Judge, **options: Any) -> None:
        self._judge = judge
        super().__init__(**options)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Each process measures all rows with `judge`."""
        start = time.perf_counter()
        found = {f"eval_{name}": value for name, value in self._judge().items()}
        if self.eval_dataset:
            measured = self.evaluation_loop(self.get_eval_dataloader(), "Evaluation", prediction_loss_only=True)
            found |= {name: value for name, value in (measured.metrics or {}).items() if name == "eval_loss"}
        found["eval_runtime"] = round(time.perf_counter() - start, 4)
        self.log(found)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found


class AdapterTrainer(RunTrainer):
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

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """The Trainer's, in several passes if their memory has a bound."""
        model.train()
        inputs = self._prepare_inputs(inputs)
        pieces = self._divide(inputs)
        if len(pieces) > 1:
            rows = [len(row) for row in inputs["rows"]]
            whole = self._objective.num_terms(inputs["labels"], rows)
            return self._add_related(model, inputs, pieces) if whole is None else self._add(model, pieces, whole)
        loss: Tensor = self.compute_loss(model, inputs)
        self.accelerator.backward(loss)
        return loss.detach()

    def _add(self, model: nn.Module, pieces: Sequence[dict[str, Any]], whole: tuple[int, int]) -> Tensor:
        """Adds the gradients of pieces, each with its share of the terms of the `whole` loss."""
        losses = []
        for number, piece in enumerate(pieces):
            outputs, lengths = self._outputs(model, piece, number), [len(row) for row in piece["rows"]]
            own = self._objective.num_terms(piece["labels"], lengths)
            assert own is not None, "terms of the whole are those of its pieces"
            shares = [part / max(all_of_them, 1) for part, all_of_them in zip(own, whole, strict=True)]
            loss = self._loss(piece, outputs, *shares)
            self.accelerator.backward(loss)
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    def _add_related(self, model: nn.Module, inputs: dict[str, Any], pieces: Sequence[dict[str, Any]]) -> Tensor:
        """Adds the gradients of pieces whose loss depends on the outputs of all: those of the outputs first, and then
        those of each piece, which is computed again (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size
        under Memory Limited Setup")."""
        first = [self._outputs(model, piece, number, related=False)[0].detach() for number, piece in enumerate(pieces)]
        outputs = torch.cat(first).requires_grad_()
        assert isinstance(self.adapter, HeadedAdapter), "texts are not related"
        related = self.adapter.relate(outputs, [len(row) for row in inputs["rows"]])
        loss = self._loss(inputs, [related])
        (gradient,) = torch.autograd.grad(loss, outputs)
        for number, (piece, own) in enumerate(
            zip(pieces, torch.split(gradient, [len(one) for one in first]), strict=True)
        ):
            again = self._outputs(model, piece, number, related=False)[0]
            self.accelerator.backward((again * own).sum())
        return loss.detach()

    def _divide(self, inputs: dict[str, Any]) -> list[dict[str, Any]]:
        """The inputs of the passes of a step: neighbouring rows, or pairs of rows."""
        rows, labels, targets = inputs["rows"], inputs["labels"], inputs.get("targets")
        if self._run.pass_bytes is None:
            return [inputs]
        sizes = [Size(len(row), len(targets[place]) if targets else 0) for place, row in enumerate(rows)]
        of_item = 1 if targets else len(rows) // len(labels)
        items = [sizes[first : first + of_item] for first in range(0, len(rows), of_item)]
        slices = list(self.memory.divide(items, self._run.pass_bytes))
        if len(slices) == 1:
            return [inputs]
        ends = list(accumulate((size.written for size in sizes), initial=0))
        return [
            {
                "labels": labels[ends[own.start] : ends[own.stop]] if targets else labels[own],
                "rows": rows[own.start * of_item : own.stop * of_item],
                **({"targets": targets[own]} if targets else {}),
            }
            for own in slices
        ]

    @cached_property
    def memory(self) -> PassMemory:
        """The memory of the passes of a step."""
        lower = self.adapter.lower_blocks if isinstance(self.adapter, HeadedAdapter) else None
        return PassMemory(
            self.adapter.backbone.config,
            self.adapter.parts,
            copies=len(self._streams()),
            lower=0 if lower is None else lower.num,
        )

    def compute_loss(  # type: ignore[override]
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        if not return_outputs:
            return self._loss(inputs, self._outputs(model, inputs))
        adapter, pieces, lengths = self.adapter, self._divide(inputs), [len(row) for row in inputs["rows"]]
        if not isinstance(adapter, HeadedAdapter):
            outputs = [torch.cat(own) for own in zip(*(self._outputs(model, one) for one in pieces), strict=True)]
        else:
            found = zip(*(self._outputs(model, piece, related=False) for piece in pieces), strict=True)
            outputs = [adapter.relate(torch.cat(own), lengths) for own in found]
        return self._loss(inputs, outputs), {"logits": outputs[0]}

    def _outputs(self, model: nn.Module, inputs: dict[str, Any], piece: int = 0, **options: bool) -> list[Tensor]:
        """Those of each pass over a piece of a step."""
        read, outputs = self._read(inputs), []
        for stream in self._streams(piece) if model.training else [None]:
            self.adapter.stream = stream
            outputs.append(model(*read, **options))
        self.adapter.stream = None
        return outputs

    def _streams(self, piece: int = 0) -> list[Stream]:
        """The random numbers of each pass over a piece of the next step."""
        num = 2 if self.adapter.is_mixture and self._objective.consistency > 0 else 1
        rank = int(os.environ.get("RANK", "0"))
        return [Stream(self.args.seed, self.state.global_step, number, rank, piece=piece) for number in range(num)]

    def _loss(
        self, inputs: dict[str, Any], outputs: Sequence[Tensor], share: float = 1.0, share_apart: float = 1.0
    ) -> Tensor:
        """The loss of one pass, or of two with their consistency; each by its share in that of a step."""
        loss = share * self._objective.task_loss(outputs[0], inputs["labels"])
        if len(outputs) > 1:
            apart = self._objective.divergence(outputs[0], outputs[1], [len(row) for row in inputs["rows"]])
            loss = loss + share_apart * self._objective.consistency * apart
        return loss

    def _read(self, inputs: dict[str, Any]) -> tuple[Any, ...]:
        adapter, backbone = self.adapter, self.adapter.backbone
        packed = backbone.pack(inputs["rows"])
        if not isinstance(adapter, HeadedAdapter):
            return packed, Targets.create(inputs["targets"], None, backbone.device)
        return packed, None if adapter.lower_blocks is None else adapter.lower_blocks.states(inputs["rows"])


class JudgedAdapterTrainer(JudgedTrainer, AdapterTrainer):
    """Trains a head of tokens or target texts. `judge` measures the adapter in the form that is served."""


def fit(  # noqa: PLR0913 - the last is for callers that watch the steps
    run: Run, model: TrainableAdapter, rows: EncodedRows | Sequence[TextRow], validation: EncodedRows | None,
    judge: Judge | None, callbacks: Sequence[TrainerCallback] = (),
) -> History:  # fmt: skip
    """Train on `rows` and leave the best epoch on `validation` in `model`. `judge` measures the answers of a head of
    tokens or of a T5, which are not the logits of single rows; that of a T5 finds the loss too and needs no
    `validation`."""
    checkpoint = str(find_checkpoint(run.directory, model)) if run.resume else None
    if checkpoint is None:
        remove_checkpoints(run.directory)
    consistency = float(model.settings.get("consistency", 0.0))
    has_head = isinstance(rows, EncodedRows)
    options: dict[str, Any] = {
        "run": run,
        "objective": create_objective(run, consistency) if has_head else TextObjective(consistency),
        "model": model,
        "args": _arguments(run, checkpoint),
        "data_collator": collate if has_head else collate_texts,
        "train_dataset": rows,
    }
    options["eval_dataset"] = validation or []  # the Trainer requires one
    if judge is None:
        trainer = AdapterTrainer(compute_metrics=partial(_measure, run), **options)
    else:
        trainer = JudgedAdapterTrainer(judge=judge, **options)
    if run.pass_bytes is not None:
        trainer.memory.check(_sizes(rows), run.pass_bytes)
    return run_trainer(run, trainer, checkpoint, callbacks)


def _sizes(rows: EncodedRows | Sequence[TextRow]) -> list[Size]:
    if isinstance(rows, EncodedRows):
        return [Size(len(row)) for row in rows.encoded]
    return [Size(len(row.encoded), len(row.read)) for row in rows]


def _measure(run: Run, prediction: EvalPrediction) -> dict[str, float]:
    logits = np.asarray(prediction.predictions)
    if not np.isfinite(logits).all():
        raise diverged(run)
    return metrics.compute(run.task_type, logits, np.asarray(prediction.label_ids))


def diverged(run: Run) -> TrainingError:
    return TrainingError(f"training diverged at learning rate {run.learning_rate:g}; try a lower one")


def run_trainer(
    run: Run, trainer: Trainer, checkpoint: str | None = None, callbacks: Sequence[TrainerCallback] = ()
) -> History:
    """Train to the end, from `checkpoint` if given, with progress on stderr. `callbacks` are called after its own."""
    for callback in (Validations(run), *callbacks):
        trainer.add_callback(callback)
    progress = ProgressLines(run)
    progress.replace_prints(trainer)
    logging.getLogger("transformers.trainer_utils").addFilter(_is_no_false_alarm)
    try:
        trainer.train(resume_from_checkpoint=checkpoint)
    finally:
        progress.close()
    return _read_history(run, trainer, checkpoint)


def _is_no_false_alarm(record: logging.LogRecord) -> bool:
    """Checkpoints of epochs shorter than a second make transformers doubt the file system's times, and it compares the
    steps between two lines of the log, which a checkpoint has, with the share of all steps that we give."""
    first, *differences = record.getMessage().split("\n\t")
    only_steps = len(differences) == 1 and differences[0].startswith("logging_steps: ")
    return not first.startswith("mtime may not be reliable") and not only_steps


def _read_history(run: Run, trainer: Trainer, checkpoint: str | None) -> History:
    state = trainer.state
    first = int(Path(checkpoint).name.removeprefix("checkpoint-")) if checkpoint else 0
    own = [entry for entry in state.log_history if entry["step"] > first]
    validating = sum(entry.get("eval_runtime", 0.0) for entry in own)
    return History(
        log=state.log_history,
        best_step=state.best_global_step,
        ending=why_ended(run, state.log_history),
        has_converged=has_converged(run, state.log_history),
        seconds=max(sum(entry.get("train_runtime", 0.0) for entry in own) - validating, 0.0),
        epochs=(state.epoch or 0.0) * (1 - first / state.global_step),
    )


def _arguments(run: Run, checkpoint: str | None) -> TrainingArguments:
    return create_arguments(
        run,
        **_length(run, checkpoint),
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model=run.metric,
        greater_is_better=run.metric not in LOWER_IS_BETTER,
        ddp_find_unused_parameters=False,
    )


def _length(run: Run, checkpoint: str | None) -> dict[str, int]:
    """The run's epochs, and its last step if it has one; or the epochs until `checkpoint` if the run stopped there."""
    if checkpoint is not None:
        state = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
        if is_over(run, state.log_history):
            return {"num_train_epochs": round(state.epoch or 0)}
    most = run.hyperparameters.max_steps
    return {"num_train_epochs": run.epochs} | ({} if most is None else {"max_steps": most})
