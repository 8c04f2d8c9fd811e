"""Baselines: training methods that adapters are compared with, and that a shared backbone cannot serve. Imports no
torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from peltier_backbone.checkpoint.config import BackboneConfig
from pydantic import ValidationError

from peltier_adapters.errors import AdapterError, sentences
from peltier_adapters.presets.composition import BUILDERS, PresetSettings, Setting, override
from peltier_adapters.presets.presets import HEAD, PRESETS, Preset, Variant, find_preset, own_pooling, with_given_head
from peltier_adapters.spec.parts import HeadSpec

_BYTES = 4  # of a float32


@dataclass(frozen=True)
class Baseline:
    """A method that changes every weight of the backbone. Its T5 inputs begin with the task's name
    (docs/methods.md#task-name)."""

    name: str
    source: str
    encoder: Variant
    t5: Variant
    task_prefix: bool = True

    def variant(self, config: BackboneConfig) -> Variant:
        return self.t5 if config.generates else self.encoder

    def settings(self, overrides: Mapping[str, str], config: BackboneConfig) -> dict[str, Setting]:
        head = {} if config.generates else HEAD
        found = override(self.name, {**self.variant(config).defaults, **head}, overrides)
        return with_given_head(found, overrides, config)

    def head(self, settings: PresetSettings, config: BackboneConfig, *, outputs: int) -> HeadSpec:
        """The head of an encoder; raises `AdapterError` for invalid settings."""
        try:
            spec = BUILDERS["head"](own_pooling(settings, config), outputs)
        except ValidationError as error:
            raise AdapterError(f"preset {self.name!r} cannot be built: {'; '.join(sentences(error))}") from None
        assert isinstance(spec, HeadSpec)
        return spec

    def count_parameters(self, settings: PresetSettings, config: BackboneConfig) -> int:
        """The number of trained parameters, without the head of an encoder."""
        return int(settings.get("dimension", config.num_parameters))

    def reason(self, config: BackboneConfig) -> str:
        """Why it has no artifact."""
        size = _BYTES * config.num_parameters / 1e6
        return (
            f"it changes every weight of the backbone, which all tasks of a server share; it would need a second "
            f"backbone of {size:,.0f} MB"
        )


_SAID: PresetSettings = {"dimension": 20000}

BASELINES: Mapping[str, Baseline] = {
    baseline.name: baseline
    for baseline in (
        Baseline("full", "Full fine-tuning (trained, not served)", Variant(2e-5, {}), Variant(3e-4, {})),
        Baseline(
            "intrinsic-said",
            "Intrinsic-SAID, Aghajanyan et al. 2020 (trained, not served)",
            Variant(3e-2, _SAID),
            Variant(3e-2, _SAID),
        ),
    )
}


def find_method(name: str) -> Preset | Baseline:
    """The preset or baseline `name`; an `AdapterError` for an unknown name lists the known ones."""
    return BASELINES[name] if name in BASELINES else find_preset(name, [*PRESETS, *BASELINES])
