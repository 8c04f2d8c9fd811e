"""The rank and the alpha of each module that PEFT adapts with LoRA, by the rule of the version that saved it; and the
factors of IA3 as one part."""

import math
import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import ConfigFile
from peltier_adapters.importers.shared.imported import ImportedPart
from peltier_adapters.importers.shared.module_sites import ModuleSite
from peltier_adapters.importers.shared.parts import MAPS
from peltier_adapters.importers.shared.peft_targets import INVALID_PATTERN
from peltier_adapters.spec.parts import ScaleSite, ScaleSpec


@dataclass(frozen=True)
class Strength:
    """The alpha and the rank of one module; with `stable` its scale is alpha over the rank's root."""

    alpha: float
    rank: int
    stable: bool

    @property
    def scale(self) -> float:
        return self.alpha / (math.sqrt(self.rank) if self.stable else self.rank)


@dataclass(frozen=True)
class _Rule:
    """How PEFT finds a module's patterns from its version `since`: with `form`, and if it is `chained` the first
    pattern of both tables is that of both."""

    since: tuple[int, int]
    form: str
    chained: bool = False


_RULES = (
    _Rule((0, 15), r"(.*\.)?({})$"),
    _Rule((0, 14), r".*\.{}$"),
    _Rule((0, 0), r".*\.{}$", chained=True),
)


def find_strength(module: str, config: ConfigFile, rank: int | None) -> Strength:
    """The strength of `module`, whose tensors have this rank. PEFT has saved its version only since 0.18: without it
    every rule counts that gives this rank. Raises an `AdapterError` if such rules give different alphas."""
    version = re.match(r"(\d+)\.(\d+)", str(config.get("peft_version")))
    rules: Iterable[_Rule] = _RULES
    if version is not None:
        rules = [next(rule for rule in _RULES if rule.since <= (int(version[1]), int(version[2])))]
    found = [_by_rule(module, config, rule) for rule in rules]
    fitting = list(dict.fromkeys(one for one in found if one.rank == rank)) or found[:1]
    if len(fitting) > 1:
        raise AdapterError(
            f"{config.where}: rank_pattern and alpha_pattern give {module!r} the alpha {fitting[0].alpha:g} in later "
            f"versions of PEFT and {fitting[1].alpha:g} in earlier ones; add the version that saved it as peft_version"
        )
    return fitting[0]


def _by_rule(module: str, config: ConfigFile, rule: _Rule) -> Strength:
    ranks, alphas = _patterns("rank_pattern", config), _patterns("alpha_pattern", config)
    try:
        rank = _first([*ranks, *alphas] if rule.chained else ranks, module, rule)
        alpha = rank if rule.chained else _first(alphas, module, rule)
    except INVALID_PATTERN:
        raise AdapterError(
            f"{config.where}: rank_pattern {dict(ranks)} or alpha_pattern {dict(alphas)} has an invalid regular "
            "expression"
        ) from None
    return Strength(
        ConfigFile(dict(alphas), config.where).number(alpha, 8) if alpha in alphas else config.number("lora_alpha", 8),
        ConfigFile(dict(ranks), config.where).count(rank) if rank in ranks else _default_rank(config),
        bool(config.get("use_rslora", False)),
    )


def _default_rank(config: ConfigFile) -> int:
    return config.count("r") if config.get("r") is not None else 8


def _first(patterns: Iterable[str], module: str, rule: _Rule) -> str:
    """The first pattern that matches the module's name; PEFT takes the name itself if none does."""
    return next((key for key in patterns if re.match(rule.form.format(key), module)), module)


def _patterns(setting: str, config: ConfigFile) -> Mapping[str, Any]:
    patterns: Any = config.get(setting, {})
    if not isinstance(patterns, dict) or not all(type(value) in (int, float) for value in patterns.values()):
        raise AdapterError(f"{config.where}: {setting} is {reprlib.repr(patterns)}; it must map names to numbers")
    return patterns


# The sites of the maps with another name as targets of LoRA.
_SITES: Mapping[str, ScaleSite] = {"output": "attention_output", "ffn_output": "output"}
# The input of the output map of an attention is a mean of values, so factors of both multiply.
_INPUTS: Mapping[str, tuple[tuple[ScaleSite, int], ...]] = {
    "attention_output": (("value", 0),),
    "output": (("activated", 0),),
}


@dataclass(frozen=True)
class Factors:
    """Factors of the outputs of a linear map, or of its inputs."""

    values: Tensor
    of_input: bool


def create_scale(found: Mapping[ModuleSite, Factors], config: BackboneConfig) -> ImportedPart:
    """The part of factors by projection and its attention or block; those that are missing are 1. Raises an
    `AdapterError` for factors of an input that no site has, or of another width than the map's."""
    placed = [piece for place, own in found.items() for piece in _split(place, own)]
    spec = ScaleSpec(sites=tuple(dict.fromkeys(site for site, *_ in placed)))
    tensors = {site: torch.ones(shape) for site, shape in spec.shapes(config).items()}
    for site, number, which, values in placed:
        whole = tensors[site][spec.numbers(site, config).index(number)]
        halves = config.expansion_size // config.intermediate_size if site == "intermediate" else 1
        part = whole.chunk(halves)[which]
        if len(part) != len(values):
            raise AdapterError(f"the factors of {site!r} are {len(values)}; on this backbone they must be {len(part)}")
        part *= values
    return ImportedPart(spec, tensors)


def _split(place: ModuleSite, own: Factors) -> list[tuple[ScaleSite, int, int, Tensor]]:
    site, number = place
    outputs = [(cast(ScaleSite, _SITES.get(target, target)), which) for target, which in MAPS[site]]
    columns = _INPUTS.get(site, ()) if own.of_input else outputs
    if not columns:
        raise AdapterError(
            f"factors of the input of {site!r} are not supported; those of inputs may be at {', '.join(_INPUTS)}"
        )
    pieces = own.values.chunk(len(columns))
    return [(to, number, which, piece) for (to, which), piece in zip(columns, pieces, strict=True)]
