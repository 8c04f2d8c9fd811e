"""What a training is about to do with its rows, before the first step."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from peltier_adapters.spec.head import DEFAULT_TERMS
from peltier_adapters.spec.tasks import TOKEN_TYPES
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config

from peltier_training.config.preparation import Prepared
from peltier_training.data.examples import Example
from peltier_training.data.findings import find_doubts, storable
from peltier_training.data.gold import Tagged
from peltier_training.errors import TrainingError
from peltier_training.fit.tokenized import TokenizedTexts

# The confusion matrix of a report has the square of it. A request names at most as many (`MAX_TRAINED_LABELS`).
MAX_LABELS = 1_000
# The targets of a multilabel task are one number for each row and label.
MAX_TARGETS = 50_000_000
# A validation keeps the outputs of all rows, 4 bytes each, while it compares them.
MAX_OUTPUTS = 250_000_000
_MAX_SHOWN_LABELS, _MAX_LABEL_LEN = 100, 100
_UNKNOWN_MINUTES = "The minutes are unknown until this worker has trained the preset once with this first_block."
_FEW_ROWS, _FEW_OF_LABEL, _ONE_SIDED = 50, 5, 0.9


@dataclass(frozen=True)
class Preflight:
    """The report on a prepared run. `seconds_per_token` is a rate that was measured, None if there is none."""

    prepared: Prepared
    seconds_per_token: float | None = None

    def check(self) -> None:
        """Raise a `TrainingError` for too many labels, or outputs of validation rows."""
        run, names = self.prepared.run, self.prepared.data.labels.names
        if len(names) > MAX_LABELS:
            raise TrainingError(f"{run.data.train} has {len(names):,} labels; a training has at most {MAX_LABELS:,}")
        if run.task_type == "multilabel" and len(names) * len(self._train) > MAX_TARGETS:
            raise TrainingError(
                f"{run.data.train} has {len(self._train):,} rows and {len(names):,} labels; their product must be at "
                f"most {MAX_TARGETS:,}"
            )
        if (outputs := len(self._validation) * self._outputs_per_row) > MAX_OUTPUTS:
            raise TrainingError(
                f"{run.data.validation} has {len(self._validation):,} rows, whose outputs are about {outputs:,.0f} "
                f"numbers; at most {MAX_OUTPUTS:,} are measured, so send fewer rows to validate on"
            )

    def report(self) -> dict[str, Any]:
        """The report in JSON."""
        labels = self.label_counts
        return {
            "rows": {"train": len(self._train), "validation": len(self._validation)},
            "labels": dict(labels.most_common(_MAX_SHOWN_LABELS)),
            "num_labels": len(labels),
            "duplicates": self.num_duplicates,
            "conflicts": self.num_conflicts,
            "leaks": self.num_leaks,
            "max_length": self.prepared.run.hyperparameters.max_length,
            "longest_input": self._texts.inputs.longest,
            "truncated": round(self._texts.inputs.share_cut, 4),
            "truncated_inputs_are_read_in_windows": self._has_windows,
            **self._target_report(),
            "steps_per_epoch": self.steps_per_epoch,
            "max_steps": self.max_steps,
            "may_end_earlier": self.prepared.run.hyperparameters.patience is not None,
            "minutes": self.minutes,
            "minutes_note": _UNKNOWN_MINUTES if self.minutes is None else None,
            "warnings": list(self.warnings()),
        }

    @property
    def _train(self) -> Sequence[Example]:
        return self.prepared.data.train.examples

    @property
    def _validation(self) -> Sequence[Example]:
        return self.prepared.data.validation.examples

    @property
    def _has_windows(self) -> bool:
        return self.prepared.run.task_type in TOKEN_TYPES

    @cached_property
    def label_counts(self) -> Counter[str]:
        """The number of training rows of each label; empty for tasks whose labels have no names."""
        return Counter(label for example in self._train for label in _labels(example, self.prepared.run.task_type))

    @property
    def num_duplicates(self) -> int:
        """Training rows that are equal to an earlier one."""
        return len(self._train) - len({(example.input, repr(example.label)) for example in self._train})

    @property
    def num_conflicts(self) -> int:
        """Inputs of the training rows that have two different labels."""
        if self.prepared.run.task_type not in ("classification", "multilabel", "regression"):
            return 0
        different = {(example.input, repr(example.label)) for example in self._train}
        return len(different) - len({example.input for example in self._train})

    @property
    def num_leaks(self) -> int:
        """Validation rows whose input is also one of training."""
        known = {example.input for example in self._train}
        return sum(example.input in known for example in self._validation)

    @cached_property
    def _texts(self) -> TokenizedTexts:
        return TokenizedTexts(self.prepared)

    def _target_report(self) -> dict[str, Any]:
        """The findings on the targets of a text to text."""
        if (lengths := self._texts.target_lengths) is None:
            return {}
        return {
            "max_new_tokens": lengths.most,
            "longest_target": lengths.longest,
            "truncated_targets": lengths.num_cut,
            "unwritable_targets": len(self._texts.unwritable),
        }

    @property
    def _outputs_per_row(self) -> float:
        run, names = self.prepared.run, self.prepared.data.labels.names
        width = run.num_outputs(names, load_config(find_checkpoint(run.backbone)))
        match run.task_type:
            case "token-classification" | "span":
                return width * self._mean_length
            case "multi-vector-embedding":
                return 2 * width * self._mean_length
            case "embedding":
                return 2 * width
            case "sparse-embedding":
                return 4 * (run.embedding.terms or DEFAULT_TERMS)
        return max(width, 1)

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self._train) // self.prepared.run.batch_size)

    @property
    def max_steps(self) -> int:
        run = self.prepared.run
        return run.hyperparameters.max_steps or run.epochs * self.steps_per_epoch

    @property
    def tokens_per_epoch(self) -> float:
        """Tokens that are trained on in an epoch, as far as they are known before the rows are read."""
        return self._mean_length * len(self._train)

    @property
    def _mean_length(self) -> float:
        inputs = self._texts.inputs
        read = inputs.tokens if self._has_windows else [min(length, inputs.most) for length in inputs.tokens]
        return sum(read) / len(read)

    @property
    def minutes(self) -> float | None:
        """The time of `max_steps`; None if no rate was measured."""
        if self.seconds_per_token is None:
            return None
        epochs = self.max_steps / self.steps_per_epoch
        return round(epochs * self.tokens_per_epoch * self.seconds_per_token / 60, 2)

    def warnings(self) -> Iterable[str]:
        """What may spoil the result, as sentences."""
        if len(self._train) < _FEW_ROWS:
            yield f"Training rows: {len(self._train)}, which are few."
        yield from find_doubts(self.prepared.data)
        yield from self._label_warnings()
        if self.num_duplicates:
            yield f"Training rows that repeat an earlier one: {self.num_duplicates}."
        if self.num_conflicts:
            yield f"Inputs that have different labels in different training rows: {self.num_conflicts}."
        if self.num_leaks:
            yield f"Validation rows whose input is also in training: {self.num_leaks}. The metrics are too high."
        yield from self._texts.warnings()

    def _label_warnings(self) -> Iterable[str]:
        counts = self.label_counts
        if self.prepared.run.task_type != "classification" or not counts:
            return
        label, most = counts.most_common(1)[0]
        if most > _ONE_SIDED * len(self._train):
            yield f"{most / len(self._train):.0%} of the training rows have the label {label!r}."
        if few := sum(count < _FEW_OF_LABEL for count in counts.values()):
            yield f"Labels with fewer than {_FEW_OF_LABEL} training rows: {few} of {len(counts)}."
        if missing := set(counts) - {str(example.label) for example in self._validation}:
            yield f"Labels of training that no validation row has: {len(missing)} of {len(counts)}."


def _labels(example: Example, task_type: str) -> Iterable[str]:
    label = example.label
    if task_type == "classification":
        found: Iterable[str] = [str(label)]
    elif task_type == "multilabel":
        found = label if isinstance(label, tuple) else (str(label),)
    else:
        found = [entity.label for entity in label.entities] if isinstance(label, Tagged) else []
    return map(_shown_label, found)


def _shown_label(name: str) -> str:
    """The name without what a database refuses, and no longer than a line."""
    return storable(name)[:_MAX_LABEL_LEN]
