"""The Trainer's arguments of every run."""

from typing import Any

from transformers import TrainingArguments

from peltier_training.config.run import Run

_LOG_INTERVAL = 0.02  # between entries of the log, as a fraction of all steps


def create_arguments(run: Run, **own: Any) -> TrainingArguments:
    """The arguments of a resolved run, with a trainer's `own`."""
    numbers = run.hyperparameters
    arguments = TrainingArguments(
        output_dir=str(run.directory),
        learning_rate=run.learning_rate,
        per_device_train_batch_size=run.batch_size,
        per_device_eval_batch_size=run.batch_size,
        warmup_steps=numbers.warmup,
        weight_decay=numbers.weight_decay,
        seed=numbers.seed,
        eval_strategy="epoch",
        logging_strategy="steps",
        logging_steps=_LOG_INTERVAL,
        report_to=["tensorboard"],
        remove_unused_columns=False,
        label_names=["labels"],
        dataloader_pin_memory=False,
        use_cpu=run.device == "cpu",
        **own,
    )
    # One process uses one device, because DataParallel would split the packed rows.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments
