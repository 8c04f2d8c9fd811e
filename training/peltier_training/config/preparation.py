"""Checks the settings and reads the rows of a run or an evaluation, before any weight is read, and fills in default
hyper-parameters, by the method, the backbone and the number of training rows. Imports no torch.

docs/results.md describes how the defaults were found and compares them with the best of a grid."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peltier_adapters.artifact.manifest import backbone_mismatches, read_manifest
from peltier_adapters.errors import ArtifactError
from peltier_adapters.presets.baselines import Baseline, find_method
from peltier_adapters.presets.composition import PresetSettings
from peltier_adapters.spec.head import DEFAULT_TERMS
from peltier_adapters.spec.maps import MAX_SIZE
from peltier_adapters.spec.tasks import EMBEDDING_TYPES, TOKEN_HEAD_TYPES, TOKEN_TYPES, TaskType
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import BackboneConfig, load_config

from peltier_training.config.run import Run
from peltier_training.config.task_options import find_template
from peltier_training.data.data import Data, LabelledData, read_file, read_labelled
from peltier_training.data.examples import Example, LabelledRows, are_scored, number_texts
from peltier_training.data.labels import Labels, number_queries
from peltier_training.errors import TrainingError, refuse
from peltier_training.processes import num_processes

_COLUMNS = ("text_columns", "label_column", "label_separator")
_MAX_SMALL_BATCH_ROWS = 2_000  # fewer training rows get small batches, for more steps in the same epochs
_SMALL_BATCH, _BATCH = 16, 32
# Without `epochs`: the most steps, or epochs if those are more; steps from one validation to the next, rounded to whole
# epochs; and steps without improvement, or validations if those are more.
_MOST_STEPS, _MOST_EPOCHS = 2_000, 10
_STEPS_PER_VALIDATION = 40
_PATIENT_STEPS, _PATIENT_VALIDATIONS = 150, 2
_WARMUP, _WARMUP_STEPS = 0.06, 30  # with `epochs` a fraction of all steps, without them a number
_MIN_EVAL_ROWS = 500
# The papers' narrowest encoder is BERT-base, and their narrowest T5 t5-small. Narrower ones learn less at their rates.
_PUBLISHED_WIDTH, _PUBLISHED_T5_WIDTH = 768, 512
_NARROW_FACTOR, _MAX_NARROW_RATE, _MAX_NARROW_T5_RATE = 6, 2e-3, 1e-2
# Prefixes that label tokens learn nothing at 2e-3: UniPELT's F1 on WNUT-17 stays 0 with any number of rows.
_MAX_PREFIXED_TOKEN_RATE = 1e-3
# At 2e-3 the map of a vocabulary head soon forgets its start, and no text finds its pair.
_MAX_SPARSE_RATE = 5e-4
_BOUNDS: Mapping[str, tuple[float, float]] = {"experts": (1, 64), "consistency": (0, 1000), "mlp": (0, MAX_SIZE)}
_CHOICES: Mapping[str, tuple[str, ...]] = {"start": ("random", "vocabulary"), "routing": ("batch", "sample")}
_SHARED = {"up": ("down",), "down": ("up",), "none": ("down", "up")}


@dataclass(frozen=True)
class Prepared:
    """A resolved run with its data."""

    run: Run
    data: LabelledData


def prepare(run: Run) -> Prepared:
    """Resolve a run. Raises a `TrainingError` or an `AdapterError` for every mistake that shows without weights."""
    run.check()
    data = read_labelled(run.data, run.task_type)
    config = load_config(find_checkpoint(run.backbone))
    is_scored = run.task_type not in EMBEDDING_TYPES or are_scored(data.validation.examples)
    run = fill_in(resolve(run, config, data.labels, is_scored=is_scored), config, len(data.train.examples))
    _check_method(run, config, run.num_outputs(data.labels.names, config))
    _check_contrast(run, data)
    return Prepared(run, data)


def resolve(run: Run, config: BackboneConfig, labels: Labels, *, is_scored: bool) -> Run:
    """A checked run for this backbone and these labels; `is_scored` tells whether the validation rows have labels,
    which pairs of an embedding may lack. Raises a `TrainingError` for what they exclude."""
    run.check_metric(labels.names)
    run.check_length(config)
    run = run.resolved(config)
    if config.generates:
        find_template(run.text.template, run.data.inputs)
    if run.task_type in EMBEDDING_TYPES:
        run = run.with_pair_metric(scored=is_scored)
        run.embedding.check_size(run.num_outputs((), config))
    return run


def _check_method(run: Run, config: BackboneConfig, outputs: int) -> None:
    """Check the method's settings."""
    method = find_method(run.preset)
    settings = method.settings(run.overrides, config)
    _check_pooling(run, settings)
    if not isinstance(method, Baseline):
        check_settings(settings, config)
        if not config.generates:
            _check_consistency(run)
        method.compose(settings, config, outputs=outputs)
    elif run.task_type in ("sparse-embedding", "multi-vector-embedding"):
        raise TrainingError(f"preset {run.preset!r} has no head for it; {run.task_type} needs an adapter")
    elif run.dtype == "int8":
        raise TrainingError(f"preset {run.preset!r} changes the backbone's weights, and weights in int8 are frozen")


def _check_pooling(run: Run, settings: PresetSettings) -> None:
    """Refuse a head that does not fit the type of the task."""
    pooling = settings.get("pooling", "auto")
    if run.task_type in TOKEN_HEAD_TYPES and pooling != "tokens":
        raise TrainingError(f"setting 'pooling' is {pooling!r}; {run.task_type} needs 'tokens', a head of every token")
    if run.task_type not in TOKEN_HEAD_TYPES and pooling == "tokens":
        raise TrainingError(f"setting 'pooling' is 'tokens', a head of every token; {run.task_type} has one vector")
    if settings.get("head_terms") and run.task_type != "sparse-embedding":
        raise TrainingError(f"setting 'head_terms' is for sparse-embedding; the task type is {run.task_type}")


def _check_contrast(run: Run, data: LabelledData) -> None:
    """Refuse rows that are compared with others of their batch where no batch has any: the loss of each step would be
    0, and nothing would be learned."""
    examples, file = data.train.examples, run.data.train.name
    if run.task_type == "ranking":
        problem = _lacks_documents(run.ranking_loss, examples, data.labels)
        needs = "a ranking learns from the documents of a query in one batch"
    elif run.task_type in EMBEDDING_TYPES and not are_scored(examples):
        problem = _lacks_partners(examples)
        needs = "pairs without scores are told apart from the other pairs of a batch"
    else:
        return
    if problem is not None:
        raise TrainingError(f"{needs}; {file} has {problem}")
    if run.batch_size == 1:
        raise TrainingError(f"{needs}; batch_size is 1, and must be at least 2")


def _lacks_documents(loss: str, examples: Sequence[Example], labels: Labels) -> str | None:
    queries: dict[int, list[float]] = {}
    for query, relevance in zip(number_queries(examples), labels.numbers(examples), strict=True):
        queries.setdefault(query, []).append(relevance)
    if loss == "pairwise":
        if any(len({*grades}) > 1 for grades in queries.values()):
            return None
        return "no query with two documents of different relevance"
    if any(len(grades) > 1 and max(grades) > 0 for grades in queries.values()):
        return None
    return "no query with several documents of which one is relevant"


def _lacks_partners(examples: Sequence[Example]) -> str | None:
    if len(examples) == 1:
        return "one pair"
    for place, texts in zip(("first", "second"), zip(*number_texts(examples), strict=True), strict=True):
        if len({*texts}) == 1:
            return f"the same {place} text in all {len(examples)} pairs"
    return None


def _check_consistency(run: Run) -> None:
    """Refuse a weight of the divergence of two outputs that are no distributions (docs/methods/adamix.md)."""
    given = run.overrides.get("consistency", "0")
    if run.task_type in ("regression", "ranking", *EMBEDDING_TYPES) and float(given) != 0:
        raise TrainingError(f"setting 'consistency' is {given}; {run.task_type} has no distributions to compare")


def prepare_evaluation(artifact: Path, path: Path, backbone: str, given: Mapping[str, Any]) -> LabelledRows:
    """The rows of `path` as the artifact's task reads them. `given` are fields of `Data`; columns and separator that
    are not among them are as in training.

    Refuses an artifact or a backbone that cannot be read or do not fit each other, and names every bad row.
    """
    manifest = read_manifest(artifact)
    config = load_config(find_checkpoint(backbone))
    if reasons := backbone_mismatches(manifest, config, manifest.backbone.fingerprint):
        raise ArtifactError(reasons)
    task, trained = manifest.task, manifest.training.data
    chosen = {**{name: trained[name] for name in _COLUMNS if trained.get(name)}, **given}
    columns = tuple(chosen.pop("text_columns", ("text",)))
    separator = chosen.pop("label_separator", None) or None
    data = Data(path, path, columns, labels=task.labels, label_separator=separator, **chosen)
    data.check(task.type)
    rows = read_file(data, path, task.type, task.labels)
    refuse(rows.bad if not data.skip_bad_rows else ())
    return rows


def fill_in(run: Run, config: BackboneConfig, num_rows: int) -> Run:
    """`run` with a value for every hyper-parameter that is None, for `num_rows` training rows.

    A run without `epochs` has an open end (`fit/schedule.py`): at most 2,000 steps or 10 epochs, whichever is more. It
    validates about every 40 steps, on at most as many inputs as it has training rows, or 500.
    """
    numbers = run.hyperparameters
    batch_size = numbers.batch_size or (_SMALL_BATCH if num_rows < _MAX_SMALL_BATCH_ROWS else _BATCH)
    rate = numbers.learning_rate or default_rate(run.preset, run.task_type, config)
    dropout = config.dropout if numbers.backbone_dropout is None else numbers.backbone_dropout
    warmup = numbers.warmup
    if warmup is None:
        warmup = _WARMUP_STEPS if numbers.epochs is None else _WARMUP
    filled = replace(numbers, batch_size=batch_size, learning_rate=rate, backbone_dropout=dropout, warmup=warmup)
    if numbers.epochs is None:
        steps = math.ceil(num_rows / (batch_size * num_processes()))
        filled = replace(filled, **_open_end(steps), eval_rows=numbers.eval_rows or max(num_rows, _MIN_EVAL_ROWS))
        filled = replace(filled, patience=numbers.patience or filled.patience)
    return replace(run, hyperparameters=filled, overrides={**run.overrides, **_pooling(run, config)})


def default_rate(preset: str, task_type: TaskType, config: BackboneConfig) -> float:
    """The published rate of the method. On a narrow encoder it is multiplied by six, up to 2e-3, or up to 1e-3 for
    prefixes that label tokens; for an adapter of a narrow T5 up to 1e-2. A sparse embedding has at most 5e-4."""
    method = find_method(preset)
    published = method.variant(config).learning_rate
    if task_type == "sparse-embedding":
        return min(published, _MAX_SPARSE_RATE)
    if config.hidden_size >= (_PUBLISHED_T5_WIDTH if config.generates else _PUBLISHED_WIDTH):
        return published
    if config.generates:
        most = published if isinstance(method, Baseline) else _MAX_NARROW_T5_RATE
    else:
        prefixed = not isinstance(method, Baseline) and "prefix" in method.parts
        most = _MAX_PREFIXED_TOKEN_RATE if prefixed and task_type in TOKEN_TYPES else _MAX_NARROW_RATE
    return max(published, min(_NARROW_FACTOR * published, most))


def _pooling(run: Run, config: BackboneConfig) -> Mapping[str, str]:
    """A head of every token for the types that have one, with the terms of a sparse embedding. Else the pooling that a
    sentence encoder was trained with; it was trained on single texts, so pairs keep the family's pooling."""
    if run.task_type in TOKEN_HEAD_TYPES:
        chosen = {"pooling": "tokens"} if run.overrides.get("pooling", "auto") == "auto" else {}
        return {**chosen, **_terms(run)} if run.task_type == "sparse-embedding" else chosen
    if run.task_type == "embedding":
        return _embedding_head(run, config)
    if config.generates or config.sentence_pooling is None or len(run.data.text_columns) > 1:
        return {}
    return {} if run.overrides.get("pooling", "auto") != "auto" else {"pooling": config.sentence_pooling}


def _terms(run: Run) -> Mapping[str, str]:
    wanted = str(run.embedding.terms or DEFAULT_TERMS)
    if (given := run.overrides.get("head_terms", wanted)) != wanted:
        raise TrainingError(f"setting 'head_terms' is {given!r}; give the number of terms by --terms")
    # The start of the map is fitted to states, so a hidden layer that a family's own heads have is left out.
    return {"head_terms": wanted, "head_hidden": run.overrides.get("head_hidden", "false")}


def _embedding_head(run: Run, config: BackboneConfig) -> Mapping[str, str]:
    """By default the pooling of a sentence encoder, or the mean over tokens."""
    pooling = run.overrides.get("pooling", "auto")
    if pooling == "auto":
        pooling = config.sentence_pooling or "mean"
    return {"pooling": pooling, "head_projection": "true" if run.embedding.projection else "false"}


def _open_end(steps_per_epoch: int) -> Mapping[str, Any]:
    """The hyper-parameters of a run with an open end. Its most epochs are a multiple of its validation interval."""
    interval = max(round(_STEPS_PER_VALIDATION / steps_per_epoch), 1)
    epochs = max(math.ceil(_MOST_STEPS / steps_per_epoch), _MOST_EPOCHS)
    return {
        "epochs": interval * math.ceil(epochs / interval),
        "patience": max(math.ceil(_PATIENT_STEPS / (interval * steps_per_epoch)), _PATIENT_VALIDATIONS),
        "validation_interval": interval,
        "open_end": True,
    }


def check_settings(settings: PresetSettings, config: BackboneConfig) -> None:
    """Raise a `TrainingError` for an invalid setting."""
    for name, (least, most) in _BOUNDS.items():
        if name in settings and not least <= float(settings[name]) <= most:
            raise TrainingError(f"setting {name!r} is {settings[name]}; it must be from {least} to {most}")
    routed_sides(settings)
    if "experts" in settings and settings.get("map", "dense") != "dense":
        # The mean of factors is not the factors of the mean.
        raise TrainingError(f"setting 'map' is {settings['map']!r}; merging experts needs 'dense'")
    for name, choices in _CHOICES.items():
        if settings.get(name, choices[0]) not in choices:
            raise TrainingError(f"setting {name!r} is {settings[name]!r}; it must be one of {', '.join(choices)}")
    if settings.get("start") == "vocabulary" and int(settings["length"]) > config.vocab_size:
        raise TrainingError(
            f"setting 'length' is {settings['length']}; the vocabulary to start from has {config.vocab_size} entries"
        )


def routed_sides(settings: PresetSettings) -> tuple[str, ...]:
    """The projections that AdaMix has copies of. Raises a `TrainingError` for an unknown `share`."""
    if "experts" not in settings:
        return ()
    if (share := settings["share"]) not in _SHARED:
        raise TrainingError(f"setting 'share' is {share!r}; it must be one of {', '.join(_SHARED)}")
    return _SHARED[str(share)]
