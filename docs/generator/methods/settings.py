"""The table of a method's settings: the default of each preset."""

from collections.abc import Mapping

from peltier_adapters.presets.baselines import find_method
from peltier_adapters.presets.composition import Setting
from peltier_adapters.presets.presets import HEAD
from peltier_backbone.checkpoint.config import BackboneConfig

from docs.generator.methods.method import Method
from docs.generator.methods.shapes import BERT, T5
from docs.generator.table import table

_MEANINGS = {
    "activation": "between the two maps",
    "alpha": "c = alpha / r",
    "bottleneck": "d, the width",
    "central": "one gate divides between LoRA and prefix",
    "consistency": "λ, the weight of the divergence between two passes; training only",
    "dimension": "numbers that are trained",
    "experts": "M; training only, because they are merged",
    "first_block": "blocks of each stack before this one stay as they are",
    "gated": "each part has a gate",
    "input": "what the bottleneck reads",
    "length": "P, the vectors",
    "map": "`dense`, `lowrank`, `phm` or `lphm` (Compacter)",
    "mlp": "width of the MLP that makes a prefix; training only",
    "n": "of hypercomplex maps",
    "norms": "train the backbone's norms too",
    "outer": "whether the factors b are the task's own; without them only d is",
    "projection_seed": "of the matrices A and B, which adapters with the same seed and rank share",
    "rank": "r",
    "routing": "one route for a `batch` or for each `sample`; training only",
    "share": "projection that all experts share: `up`, `down` or `none`; training only",
    "sites": "where it acts",
    "skip": "blocks of each stack without a bottleneck",
    "start": "initial values: `random` or `vocabulary`; training only",
    "targets": "maps: a list, or `all-linear`",
}


def settings(method: Method) -> str:
    """A row for the learning rate and for each setting, but for those of the head; a column for each preset."""
    own = [_defaults(preset) for preset in method.presets]
    names = list(dict.fromkeys(name for values in own for name in values))
    rows = [(f"`{name}`", _MEANINGS[name], *(values.get(name, "") for values in own)) for name in names]
    rates = ("`--learning-rate`", "highest learning rate", *(_rate(preset) for preset in method.presets))
    return table(("setting", "meaning", *(f"`{preset}`" for preset in method.presets)), [*rows, rates])


def _defaults(preset: str) -> Mapping[str, str]:
    """Each setting with its default, or both if it differs on a T5."""
    own = [_settings(preset, config) for config in (BERT, T5)]
    names = dict.fromkeys(name for values in own for name in values if name not in HEAD)
    return {name: _both([_text(values[name]) for values in own if name in values]) for name in names}


def _settings(preset: str, config: BackboneConfig) -> Mapping[str, Setting]:
    method = find_method(preset)
    defined = method.t5 if config.generates else method.encoder
    return method.settings({}, config) if defined is not None else {}


def _rate(preset: str) -> str:
    method = find_method(preset)
    return _both([f"{one.learning_rate:g}" for one in (method.encoder, method.t5) if one is not None])


def _both(values: list[str]) -> str:
    first, *others = dict.fromkeys(values)
    return f"{first}; on T5 {others[0]}" if others else first


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).replace(",", ", ")
