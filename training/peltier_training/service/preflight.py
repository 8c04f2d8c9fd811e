"""What a training is about to do with its rows, before the first step. Imports no torch."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from peltier_adapters.spec.head import DEFAULT_TERMS
from peltier_adapters.spec.tasks import EMBEDDING_TYPES, TOKEN_TYPES
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from peltier_backbone.text.tokenizer import load_tokenizer

from peltier_training.config.preparation import Prepared
from peltier_training.config.task_options import find_template
from peltier_training.data.examples import Example
from peltier_training.data.findings import find_doubts
from peltier_training.data.gold import Tagged
from peltier_training.errors import TrainingError
from peltier_training.service.messages import storable

# The confusion matrix of a report has the square of it. A request names at most as many (`MAX_TRAINED_LABELS`).
MAX_LABELS = 1_000
# The targets of a multilabel task are one number for each row and label.
MAX_TARGETS = 50_000_000
# A validation keeps the outputs of all rows, 4 bytes each, while it compares them.
MAX_OUTPUTS = 250_000_000
_MAX_SHOWN_LABELS, _MAX_LABEL_LEN = 100, 100
_MAX_READ_ROWS = 20_000
_UNKNOWN_MINUTES = "The minutes are unknown until this worker has trained the preset once with this first_block."
_FEW_ROWS, _FEW_OF_LABEL, _ONE_SIDED, _MUCH_TRUNCATED = 50, 5, 0.9, 0.05


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
            "longest_input": max(self._lengths),
            "truncated": round(self.share_too_long, 4),
            "truncated_inputs_are_read_in_windows": self._has_windows,
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
    def _lengths(self) -> list[int]:
        """The tokens of inputs, of at most `_MAX_READ_ROWS` evenly spaced training rows."""
        run = self.prepared.run
        checkpoint = find_checkpoint(run.backbone)
        tokenizer, generates = load_tokenizer(checkpoint), load_config(checkpoint).generates
        template = find_template(run.text.template, run.data.inputs) if generates else None
        rows = self._train[:: len(self._train) // _MAX_READ_ROWS + 1]
        inputs = [texts for example in rows for texts in _texts(example, run.task_type, template)]
        return [len(tokenizer.encode(*texts)) for texts in inputs]

    @property
    def share_too_long(self) -> float:
        """The share of inputs that have more tokens than the run reads at once."""
        most = self.prepared.run.hyperparameters.max_length
        return sum(length > most for length in self._lengths) / len(self._lengths)

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
        most = self.prepared.run.hyperparameters.max_length
        read = self._lengths if self._has_windows else [min(length, most) for length in self._lengths]
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
        if self.share_too_long > _MUCH_TRUNCATED and not self._has_windows:
            most = self.prepared.run.hyperparameters.max_length
            yield f"{self.share_too_long:.0%} of the inputs have more than {most} tokens; their rest is not read."

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


def _texts(example: Example, task_type: str, template: str | None) -> list[tuple[str, ...]]:
    """The texts of each input of an example, as they are tokenised."""
    texts = (example.input,) if isinstance(example.input, str) else tuple(example.input)
    if task_type in EMBEDDING_TYPES:
        return [(text,) for text in texts]
    if template is not None:
        fields: Mapping[str, str] = dict(zip(("{text}", "{pair}", "{third}"), texts, strict=False))
        for field, text in fields.items():
            template = template.replace(field, text)
        return [(template,)]
    return [texts]
