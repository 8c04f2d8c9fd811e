"""The settings of one training run."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

from peltier_adapters.artifact.manifest import NAME_PATTERN
from peltier_adapters.presets.baselines import find_method
from peltier_adapters.spec.tasks import ENCODER_TYPES, LONGEST_ANSWER, TOKEN_TYPES, TaskType
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_client.bulk.data_file import near_path
from typer import Option

from peltier_training.config.task_options import DEFAULT_VECTOR_SIZE, EmbeddingOptions, TextOptions
from peltier_training.data.data import Data
from peltier_training.errors import TrainingError

_OF_PAIRS = ("spearman", "pearson", "mrr", "accuracy")
# The metrics of each type of task; the first one chooses the best epoch if no other is given.
METRICS: dict[TaskType, tuple[str, ...]] = {
    "classification": ("accuracy", "f1", "f1_macro", "matthews"),
    "multilabel": ("f1_micro", "f1_macro", "exact_match"),
    "regression": ("pearson", "spearman", "mse"),
    "text2text": ("chrf", "bleu", "rouge_l", "exact_match", "loss"),
    "ranking": ("ndcg@10", "mrr"),
    "embedding": _OF_PAIRS,
    "sparse-embedding": _OF_PAIRS,
    "multi-vector-embedding": _OF_PAIRS,
    "span": ("f1", "exact_match"),
    "token-classification": ("f1", "precision", "recall"),
}
LOWER_IS_BETTER = frozenset({"mse", "loss"})
# The metrics of an embedding on pairs with scores, and on pairs that belong together; the first is the default.
_PAIR_METRICS = {True: ("spearman", "pearson"), False: ("mrr", "accuracy")}
_AT_LEAST = {
    "epochs": 1,
    "batch_size": 1,
    "max_length": 3,
    "max_answer_length": 1,
    "stride": 0,
    "seed": 0,
    "warmup": 0.0,
    "weight_decay": 0.0,
    "dropout": 0.0,
    "backbone_dropout": 0.0,
    "eval_rows": 1,
    "patience": 1,
}
_MAX_SEED = 2**32 - 1  # numpy's
Number = TypeVar("Number", int, float)
RankingLoss = Literal["listwise", "pairwise"]
RANKING_LOSSES: tuple[RankingLoss, ...] = get_args(RankingLoss)
DEFAULT_RANKING_LOSS: RankingLoss = "listwise"


@dataclass(frozen=True)
class Hyperparameters:
    """The optimisation. `preparation.fill_in` replaces None by values for the method, the backbone and the number of
    training rows. There are `validation_interval` epochs from one validation to the next; None is one. With an
    `open_end`, `epochs` are the most (`fit.schedule`). With `max_steps` the last step is that one, which may be within
    an epoch, and the learning rate falls until then."""

    epochs: Annotated[
        int | None,
        Option(
            help="Passes over the training data. Default: until the validation stops improving, at most 2,000 steps or "
            "10 passes, whichever is more."
        ),
    ] = None
    learning_rate: Annotated[
        float | None, Option(help="Highest learning rate. Default: the preset's, raised on narrow encoders.")
    ] = None
    batch_size: Annotated[
        int | None, Option(help="Rows per step. Default: 16 for fewer than 2,000 training rows, else 32.")
    ] = None
    seed: Annotated[int, Option(help="Seed of initialisation, order and routing.")] = 0
    warmup: Annotated[
        float | None,
        Option(help="Warm-up steps; below 1, a fraction of all steps. Default: 0.06 with --epochs, else 30 steps."),
    ] = None
    weight_decay: Annotated[float, Option(help="AdamW weight decay.")] = 0.0
    dropout: Annotated[float, Option(help="Dropout before the output layer.")] = 0.1
    backbone_dropout: Annotated[
        float | None,
        Option(
            help="Dropout in the frozen backbone, of its embeddings and of the output of each sub-layer. Default: the "
            "checkpoint's rate."
        ),
    ] = None
    max_length: Annotated[int, Option(help="Maximum length of an input in tokens.")] = 128
    max_answer_length: Annotated[
        int | None, Option(help="Span: maximum length of an answer in tokens. Default: 30.")
    ] = None
    stride: Annotated[
        int | None,
        Option(
            help="Token classification, span: tokens that windows of a longer text share. Default: a quarter of the "
            "maximum length, for span a third."
        ),
    ] = None
    metric: Annotated[str | None, Option(help="Metric that chooses the best epoch. Default: the task type's own.")] = (
        None
    )
    eval_rows: Annotated[
        int | None,
        Option(
            help="Number of validation inputs that choose the best epoch. Default: all with --epochs, else the number "
            "of training inputs, but at least 500. The final metrics are measured on all."
        ),
    ] = None
    patience: Annotated[
        int | None,
        Option(
            help="Validations without improvement until training ends; without --epochs, until the learning rate "
            "falls. Default: with --epochs none, else as many as 150 steps have, but at least 2."
        ),
    ] = None
    ranking_loss: Annotated[
        str | None,
        Option(help="Loss of a ranking: listwise or pairwise, over the documents of a query. Default: listwise."),
    ] = None
    validation_interval: int | None = None
    open_end: bool = False
    max_steps: int | None = None

    def check(self) -> None:
        """Raise a `TrainingError` for an invalid value."""
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise TrainingError(f"{name} is {value}; it must be a number of at least {least}")
        for name in ("dropout", "backbone_dropout"):
            rate = getattr(self, name)
            if rate is not None and rate >= 1:
                raise TrainingError(f"{name} is {rate}; it must be a fraction below 1")
        if self.warmup is not None and self.warmup >= 1 and self.warmup != int(self.warmup):
            raise TrainingError(f"warmup is {self.warmup}; it must be a fraction below 1 or a whole number of steps")
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise TrainingError(f"learning_rate is {self.learning_rate}; it must be a number above 0")
        if self.ranking_loss is not None and self.ranking_loss not in RANKING_LOSSES:
            known = " or ".join(RANKING_LOSSES)
            raise TrainingError(f"ranking_loss is {self.ranking_loss!r}; it must be {known}")
        if self.seed > _MAX_SEED:
            raise TrainingError(f"seed is {self.seed}; it must be at most {_MAX_SEED}")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run: `output` is the artifact's file, `directory` holds checkpoints and TensorBoard events; `text` is for T5,
    and `embedding` for embeddings.

    The adapter's own parameters are float32, whatever `dtype` is. With `threads` None, torch's number stays as it is.
    With `merge_report` the report compares an AdaMix's merged adapter with routes through its experts. Without
    `writes_events` there are no TensorBoard events, whose library takes half a second to import. A step whose pass
    would need more than about `pass_bytes` is divided into several (`fit/passes.py`)."""

    task: Annotated[str, Option(help="Name of the task and of its adapter.")]
    task_type: Annotated[TaskType, Option(help=f"{', '.join(METRICS)}.")] = "classification"
    preset: str
    backbone: str
    data: Data
    output: Path
    directory: Path
    hyperparameters: Hyperparameters = Hyperparameters()
    text: TextOptions = field(default_factory=TextOptions)
    embedding: EmbeddingOptions = field(default_factory=EmbeddingOptions)
    overrides: Mapping[str, str] = field(default_factory=dict)
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto"
    dtype: Annotated[
        str,
        Option(
            help="Precision of the frozen backbone in training: float32, bfloat16, or on a CPU int8. The metrics are "
            "measured in int8 after training in int8, else in float32."
        ),
    ] = "float32"
    threads: int | None = None
    resume: Annotated[
        bool, Option("--resume", help="Continue from the newest checkpoint; without it, earlier ones are removed.")
    ] = False
    merge_report: Annotated[
        bool | None,
        Option(
            "--merge-report/--no-merge-report",
            help="AdaMix: measure random, fixed and ensembled routes too. Default: if the preset has experts.",
        ),
    ] = None

    writes_events: bool = True
    pass_bytes: int | None = None

    @property
    def epochs(self) -> int:
        """Passes over the training data, or the most of an open end; set at the latest by `preparation.fill_in`, as the
        next four are."""
        return _filled(self.hyperparameters.epochs)

    @property
    def batch_size(self) -> int:
        """Rows per step."""
        return _filled(self.hyperparameters.batch_size)

    @property
    def learning_rate(self) -> float:
        """The highest learning rate, after warm-up."""
        return _filled(self.hyperparameters.learning_rate)

    @property
    def warmup(self) -> float:
        """Warm-up steps; below 1, a fraction of all steps."""
        return _filled(self.hyperparameters.warmup)

    @property
    def backbone_dropout(self) -> float:
        """The dropout in the frozen backbone."""
        return _filled(self.hyperparameters.backbone_dropout)

    @property
    def ranking_loss(self) -> str:
        """The loss of a ranking."""
        return self.hyperparameters.ranking_loss or DEFAULT_RANKING_LOSS

    @property
    def metric(self) -> str:
        """The metric that chooses the best epoch."""
        return self.hyperparameters.metric or METRICS[self.task_type][0]

    def check(self) -> None:
        """Raise a `TrainingError` or an `AdapterError` for a mistake that shows without data or weights."""
        if not re.fullmatch(NAME_PATTERN, self.task):
            raise TrainingError(f"task {self.task!r} is not a name; a name matches {NAME_PATTERN}")
        if self.task_type not in METRICS:
            raise TrainingError(f"task type {self.task_type!r} is unknown; it is one of {', '.join(METRICS)}")
        known = METRICS[self.task_type]
        if self.metric not in known:
            raise TrainingError(f"metric {self.metric!r} is not one of {self.task_type}'s: {', '.join(known)}")
        if not self.output.parent.is_dir():
            near = near_path(self.output.parent)
            raise TrainingError(f"output {self.output} cannot be written: its folder does not exist{near}")
        if self.output.is_dir() or not os.access(self.output.parent, os.W_OK):
            raise TrainingError(f"output {self.output} cannot be written: it is a folder, or its folder is read-only")
        find_method(self.preset)
        self.data.check(self.task_type)
        self.hyperparameters.check()
        self._check_options_of_types()
        self.text.check(self.task_type)
        self.embedding.check(self.task_type)
        if self.task_type == "ranking" and self.data.inputs != "pair":
            num = len(self.data.text_columns)
            raise TrainingError(f"ranking has two text columns, the query and the document; {num} were given")

    def _check_options_of_types(self) -> None:
        """Refuse options of other types of tasks, and an answer that is too long."""
        numbers = self.hyperparameters
        known = {"max_answer_length": {"span"}, "stride": TOKEN_TYPES, "ranking_loss": {"ranking"}}
        for name, types in known.items():
            if getattr(numbers, name) is not None and self.task_type not in types:
                wanted = " and ".join(sorted(types))
                raise TrainingError(f"{name} is for {wanted}; the task type is {self.task_type}")
        if (numbers.max_answer_length or 0) > LONGEST_ANSWER:
            length = numbers.max_answer_length
            raise TrainingError(f"max_answer_length is {length}; it must be at most {LONGEST_ANSWER}")

    def num_outputs(self, labels: Sequence[str], config: BackboneConfig) -> int:
        """The outputs of the head of a task with these labels."""
        if self.task_type == "embedding":
            return self.embedding.projection or config.hidden_size
        if self.task_type == "multi-vector-embedding":
            return self.embedding.projection or DEFAULT_VECTOR_SIZE
        if self.task_type == "sparse-embedding":
            return config.token_size
        return len(labels)

    @property
    def head_dropout(self) -> float:
        """The dropout before the output layer, which an embedding without a projection does not have."""
        has_layer = self.task_type != "embedding" or self.embedding.projection
        return self.hyperparameters.dropout if has_layer else 0.0

    def with_pair_metric(self, *, scored: bool) -> "Run":
        """The run of an embedding whose validation pairs have scores or belong together. Raises a `TrainingError` for a
        metric that they do not have."""
        known = _PAIR_METRICS[scored]
        chosen = self.hyperparameters.metric or known[0]
        if chosen not in known:
            pairs = "pairs with scores" if scored else "pairs without scores"
            raise TrainingError(f"metric {chosen!r} is not one of {pairs}: {', '.join(known)}")
        return replace(self, hyperparameters=replace(self.hyperparameters, metric=chosen))

    def check_metric(self, labels: Sequence[str]) -> None:
        """Raise a `TrainingError` for a metric that a task with these labels does not have."""
        if self.task_type == "classification" and self.metric == "f1" and len(labels) != 2:
            raise TrainingError(
                f"task {self.task!r}: metric 'f1' is for two labels and it has {len(labels)}; f1_macro has no limit"
            )

    def check_length(self, config: BackboneConfig) -> None:
        """Raise a `TrainingError` for a `max_length` that exceeds the backbone's."""
        length = self.hyperparameters.max_length
        if length > config.max_tokens:
            raise TrainingError(f"max_length is {length}; this backbone takes {config.max_tokens} tokens")

    def resolved(self, config: BackboneConfig) -> "Run":
        """The run with the options for this backbone. Raises a `TrainingError` for what its family cannot do."""
        preset = find_method(self.preset)
        own = f"backbone {self.backbone!r} is of the family {config.family}"
        if config.generates and self.task_type == "multilabel":
            raise TrainingError(f"multilabel is not possible on T5, where a text is one label; {own}")
        if config.generates and self.task_type in ENCODER_TYPES:
            raise TrainingError(f"{self.task_type} needs an encoder; {own}")
        if not config.generates and self.task_type == "text2text":
            raise TrainingError(f"text2text needs a T5; {own}")
        if not config.generates and self.text.given:
            raise TrainingError(f"{self.text.given[0]} is an option of T5; {own}")
        has_experts = "experts" in preset.settings(self.overrides, config)
        if self.merge_report and not has_experts:
            raise TrainingError(f"a merge report compares AdaMix's experts; preset {self.preset!r} has none")
        compared = has_experts if self.merge_report is None else self.merge_report
        text = self.text.resolved(self.task_type, task_prefix=preset.task_prefix) if config.generates else self.text
        return replace(self, text=text, merge_report=compared)


def _filled(number: Number | None) -> Number:
    assert number is not None, "`fill_in` sets it"
    return number
