"""What the Hugging Face Trainer is told of every run."""

from typing import Any

from transformers import TrainingArguments

from peltier_training.config.run import Run

_LOGGED_SHARE = 0.02  # of all steps, from one entry of the log to the next


def create_arguments(run: Run, **own: Any) -> TrainingArguments:
    """Those of a resolved run, and a trainer's `own`."""
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
        logging_steps=_LOGGED_SHARE,
        report_to=["tensorboard"],
        remove_unused_columns=False,
        label_names=["labels"],
        dataloader_pin_memory=False,
        use_cpu=run.device == "cpu",
        **own,
    )
    # One process drives one device: DataParallel would cut the packed rows in pieces.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments
