"""Adapters with random weights of any preset, as artifacts with correct golden examples."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from peltier_adapters.artifact.artifact import Artifact, read_artifact
from peltier_adapters.artifact.manifest import TrainingRecord
from peltier_adapters.golden.proof import Candidate, prove
from peltier_adapters.parts import init_tensors
from peltier_adapters.presets.composition import PresetSettings
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.spec.parts import Parts
from peltier_adapters.spec.tasks import SPAN_LABELS, DecodingSpec, InputForm, TaskSpec, TaskType
from peltier_backbone.backbone import Backbone
from peltier_training.models.model import HeadedAdapter, TextAdapter

Model = TypeVar("Model", HeadedAdapter, TextAdapter)
LABELS = ("negative", "positive")
# As many golden examples as `peltier train` writes, of 6 to 34 tokens.
INPUTS = (
    "a gem of a film",
    "it is dull, it is long and it never ends",
    "this one is a long, tedious and entirely forgettable evening at the cinema",
    "what begins as a modest story about two brothers and their farm grows, almost without one false note, into one "
    "of the warmest and funniest films of the year",
)


def make_task(backbone: Backbone, labels: Sequence[str] = LABELS, max_length: int = 128) -> TaskSpec:
    """One of `labels` for a sentence; on a T5 a text to write."""
    if backbone.config.generates:
        writing = DecodingSpec(answer="generate")
        return TaskSpec(
            type="text2text", labels=(), inputs="single", max_length=max_length, template="{text}", decoding=writing
        )
    return TaskSpec(type="classification", labels=tuple(labels), inputs="single", max_length=max_length)


TAGS = ("O", *(f"{place}-{name}" for name in ("person", "place", "group", "product") for place in "BI"))
# The labels, the form of the inputs, and the settings of the head of each kind of task on an encoder.
KINDS: Mapping[TaskType, tuple[Sequence[str], InputForm, Mapping[str, str]]] = {
    "classification": (LABELS, "single", {}),
    "multilabel": (LABELS, "single", {}),
    "regression": (("value",), "pair", {}),
    "token-classification": (TAGS, "single", {"pooling": "tokens"}),
    "span": (SPAN_LABELS, "pair", {"pooling": "tokens"}),
    "embedding": ((), "single", {"pooling": "mean", "head_projection": "false"}),
    "sparse-embedding": ((), "single", {"pooling": "tokens", "head_terms": "256", "head_hidden": "false"}),
    "multi-vector-embedding": ((), "single", {"pooling": "tokens"}),
    "ranking": (("score",), "pair", {}),
}


def make_kind(backbone: Backbone, preset: str, kind: TaskType, number: int) -> Artifact:
    """Adapter `number` of `preset` for a kind of task, on an encoder."""
    labels, inputs, head = KINDS[kind]
    task = TaskSpec(type=kind, labels=tuple(labels), inputs=inputs, max_length=128)
    return read_artifact(make_bytes(backbone, preset, number, task=task, **head), backbone)


def compose(backbone: Backbone, preset: str, outputs: int, **overrides: str | int) -> tuple[PresetSettings, Parts]:
    """The settings of `preset`, some of them overridden, and its parts."""
    recipe = find_preset(preset)
    settings = recipe.settings({name: str(value) for name, value in overrides.items()}, backbone.config)
    return settings, recipe.compose(settings, backbone.config, outputs=outputs)


def create_trained(kind: type[Model], backbone: Backbone, preset: str) -> Model:
    """A new adapter of `preset` with two labels, in training."""
    settings, parts = compose(backbone, preset, len(LABELS))
    return kind(backbone, parts, settings, seed=0).train()


def make_bytes(
    backbone: Backbone, preset: str, number: int, *, task: TaskSpec | None = None, noise: float = 0.02,
    **overrides: str | int,
) -> bytes:  # fmt: skip
    """The file of adapter `number` of `preset`, with some of its settings overridden: `noise` moves every tensor away
    from its start, where most presets change nothing."""
    task = task or make_task(backbone)
    config = backbone.config
    widths = {"embedding": config.hidden_size, "sparse-embedding": config.token_size, "multi-vector-embedding": 128}
    outputs = widths.get(task.type, len(task.labels or LABELS))
    _, parts = compose(backbone, preset, outputs, **overrides)
    generator = torch.Generator().manual_seed(number)
    tensors = {
        name: tensor + noise * torch.randn(tensor.shape, generator=generator)
        for name, tensor in init_tensors(parts, backbone, generator).items()
    }
    name = f"{preset.replace('+', 'p')}-{number}"
    inputs = [(text, text[::-1]) for text in INPUTS] if task.inputs == "pair" else INPUTS
    return prove(backbone, Candidate(name, preset, parts, tensors, task), inputs, TrainingRecord())


def make_artifact(backbone: Backbone, preset: str, number: int) -> Artifact:
    """The same, read as a server reads it."""
    return read_artifact(make_bytes(backbone, preset, number), backbone)
