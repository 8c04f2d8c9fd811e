"""The preset: a published method as a composition of parts. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from peltier_backbone.checkpoint.config import BackboneConfig, ModernBertConfig
from pydantic import ValidationError

from peltier_adapters.errors import AdapterError, sentences
from peltier_adapters.presets.composition import BUILDERS, PresetSettings, Setting, override
from peltier_adapters.spec.parts import Parts, part_problems

# The head of an encoder's adapter. "auto" is BERT's pooler, and elsewhere a dense layer on the first token, as in
# RoBERTa, or on the pooling that the configuration of a ModernBERT names. Without a projection the pooled vector is the
# output, as an embedding.
HEAD: PresetSettings = {"pooling": "auto", "head_hidden": False, "head_projection": True}
# Blocks of each stack below this one stay the backbone's own. Soft prompts change what the first block reads, so a
# preset of prompts alone has no such setting.
FIRST_BLOCK: PresetSettings = {"first_block": 0}
# The bottleneck of the Compacter paper's t5-base (24) and t5-small (16).
_T5_REDUCTION = 32
AUTO_SIZE = 0


@dataclass(frozen=True)
class Variant:
    """A method on one kind of backbone: its learning rate, and the defaults of its settings."""

    learning_rate: float
    defaults: PresetSettings


@dataclass(frozen=True)
class Preset:
    """One method: its source, its parts in order, and its variants. A T5 variant contains only the differences from the
    encoder's settings; None means that the method is not defined there. `pre_norm` contains what differs on an encoder
    without norms after the residual sums. With `task_prefix`, T5 inputs begin with the task's name, as in the papers
    (docs/methods.md#task-name)."""

    name: str
    source: str
    parts: tuple[str, ...]
    encoder: Variant | None
    t5: Variant | None
    task_prefix: bool = False
    pre_norm: PresetSettings = field(default_factory=dict)

    def variant(self, config: BackboneConfig) -> Variant:
        """The method on this backbone, or an `AdapterError`."""
        found = self.t5 if config.generates else self.encoder
        if found is None:
            raise AdapterError(f"preset {self.name!r} is not defined on a {config.family} backbone")
        return found

    def settings(self, overrides: Mapping[str, str], config: BackboneConfig) -> dict[str, Setting]:
        """The defaults on this backbone with `overrides`, parsed by the types of the defaults."""
        variant = self.variant(config)
        known: dict[str, Setting] = dict(self.encoder.defaults if self.encoder else {})
        known.update(variant.defaults)
        if config.pre_norm and not config.generates:
            known.update(self.pre_norm)
        if known.get("bottleneck") == AUTO_SIZE:
            known["bottleneck"] = max(config.hidden_size // _T5_REDUCTION, 1)
        known.update(FIRST_BLOCK if any(part != "prompt" for part in self.parts) else {})
        known.update({} if config.generates else HEAD)
        return override(self.name, known, overrides)

    def compose(self, settings: PresetSettings, config: BackboneConfig, *, outputs: int) -> Parts:
        """The parts of an adapter, on an encoder with a head of `outputs` values."""
        _check_first_block(self.name, settings, config)
        norms = ["norm" if config.biased else "norm_weight"]
        central = ["central_gate"] if settings.get("central") else []
        kinds = [*central, *self.parts, *(norms if settings.get("norms") else [])]
        if not config.generates:
            kinds, settings = [*kinds, "head"], own_pooling(settings, config)
        try:
            parts = tuple(BUILDERS[kind](settings, outputs) for kind in kinds)
        except ValidationError as error:
            raise AdapterError(f"preset {self.name!r} cannot be built: {'; '.join(sentences(error))}") from None
        problems = part_problems(parts, config)
        if problems:
            raise AdapterError(f"preset {self.name!r} does not fit this backbone: {'; '.join(problems)}")
        return parts


def _check_first_block(name: str, settings: PresetSettings, config: BackboneConfig) -> None:
    first = int(settings.get("first_block", 0))
    if not 0 <= first < config.num_layers:
        raise AdapterError(
            f"preset {name!r} cannot begin at first_block = {first}; blocks are numbered from 0 to "
            f"{config.num_layers - 1}"
        )


def own_pooling(settings: PresetSettings, config: BackboneConfig) -> PresetSettings:
    """`settings` with the family's pooling and head instead of "auto"."""
    if settings["pooling"] != "auto":
        return settings
    if config.pooled:
        return {**settings, "pooling": "pooler"}
    pooling = config.classifier_pooling if isinstance(config, ModernBertConfig) else "first"
    return {**settings, "pooling": pooling, "head_hidden": True}
