"""Checks of settings that only affect training, which no part's spec checks. Imports no torch."""

from collections.abc import Mapping

from peltier_adapters.presets.composition import PresetSettings
from peltier_adapters.spec.maps import MAX_SIZE
from peltier_backbone.checkpoint.config import BackboneConfig

from peltier_training.errors import TrainingError

_BOUNDS: Mapping[str, tuple[float, float]] = {"experts": (1, 64), "consistency": (0, 1000), "mlp": (0, MAX_SIZE)}
_CHOICES: Mapping[str, tuple[str, ...]] = {"start": ("random", "vocabulary"), "routing": ("batch", "sample")}
_SHARED = {"up": ("down",), "down": ("up",), "none": ("down", "up")}


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
