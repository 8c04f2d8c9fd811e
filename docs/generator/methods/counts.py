"""The table of a method's parameters: each formula, its value, and what the code counts, which must be equal."""

from collections.abc import Iterator, Mapping

from peltier_adapters.presets.baselines import Baseline, find_method
from peltier_adapters.presets.composition import PresetSettings
from peltier_adapters.spec.parts import count_parameters
from peltier_backbone.checkpoint.config import BackboneConfig

from docs.generator.methods.method import Method
from docs.generator.methods.shapes import SHAPES
from docs.generator.table import table

_BYTES = 4  # of a float32
_LETTERS = {"bottleneck": "d", "n": "n", "rank": "r", "length": "P"}


def counts(method: Method) -> str:
    """A row for each preset and backbone. Raises `ValueError` for a formula that the code contradicts."""
    header = ("preset", "backbone", "formula", "parameters", "of the backbone", "in float32")
    return table(header, _rows(method))


def _rows(method: Method) -> Iterator[tuple[str, ...]]:
    for preset, *formulas in zip(method.presets, method.bert, method.t5, strict=True):
        for (name, config), formula in zip(SHAPES.items(), formulas, strict=True):
            found = find_method(preset)
            if not isinstance(found, Baseline) and formula is None:
                yield f"`{preset}`", name, "not defined", "", "", ""
                continue
            count = count_of(preset, config)
            percent = f"{100 * count / config.num_parameters:.3f} %"
            shown = _checked(preset, formula, config, count)
            yield f"`{preset}`", name, shown, f"{count:,}", percent, f"{_BYTES * count / 1e6:,.2f} MB"


def count_of(preset: str, config: BackboneConfig) -> int:
    """The parameters of a preset with its default settings, without the head."""
    method = find_method(preset)
    settings = method.settings({}, config)
    if isinstance(method, Baseline):
        return method.count_parameters(settings, config)
    return count_parameters(method.compose(settings, config, outputs=2), config)


def _checked(preset: str, formula: str | None, config: BackboneConfig, count: int) -> str:
    """The formula as text, once its value is the count."""
    if formula is None:
        return "one vector" if preset == "intrinsic-said" else "every weight"
    letters = _letters(find_method(preset).settings({}, config), config)
    value = eval(formula, {"__builtins__": {}}, dict(letters))  # noqa: S307  # the formulas of method.py
    if value != count:
        raise ValueError(f"the formula of {preset!r}, {formula}, is {value}; the code counts {count}")
    return formula.replace("**3", "³").replace("*", " ").replace("-", "−")


def _letters(settings: PresetSettings, config: BackboneConfig) -> Mapping[str, int]:
    """The values of the letters of docs/methods.md#notation."""
    norms = config.num_norms * config.hidden_size * (2 if config.biased else 1)
    own = {letter: int(settings[name]) for name, letter in _LETTERS.items() if name in settings}
    shape = {"H": config.hidden_size, "F": config.intermediate_size, "L": config.num_layers, "V": config.vocab_size}
    return {**shape, "N": norms, **own}
