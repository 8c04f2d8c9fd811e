"""Makes part specs from a preset's settings. Imports no torch."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from peltier_adapters.errors import AdapterError
from peltier_adapters.spec import parts as spec
from peltier_adapters.spec.parts import PartSpec

Setting = bool | int | float | str
PresetSettings = Mapping[str, Setting]


def parse_setting(name: str, text: str, default: Setting) -> Setting:
    try:
        if isinstance(default, bool):
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return type(default)(text)
    except (ValueError, KeyError):
        kind = {bool: "true or false", int: "an integer", float: "a number"}[type(default)]
        raise AdapterError(f"setting {name!r} is {text!r}; it must be {kind}") from None


def override(owner: str, known: PresetSettings, overrides: Mapping[str, str]) -> dict[str, Setting]:
    """`known` with `overrides`, parsed by the types of the values that they replace; unknown names are refused."""
    for name in overrides:
        if name not in known:
            has = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise AdapterError(f"preset {owner!r} has no setting {name!r}; {has}")
    return {**known, **{name: parse_setting(name, text, known[name]) for name, text in overrides.items()}}


def parse_overrides(pairs: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs of a command line."""
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise AdapterError(f"--set takes NAME=VALUE, not {wrong[0]!r}")
    return dict(pair.split("=", 1) for pair in pairs)


# The settings of each kind of map.
MAP_SETTINGS: Mapping[Setting, tuple[str, ...]] = {
    "dense": (), "lowrank": ("rank",), "phm": ("n",), "lphm": ("n", "rank")
}  # fmt: skip


def _map(settings: PresetSettings) -> dict[str, Any]:
    kind = settings["map"]
    if kind not in MAP_SETTINGS:
        raise AdapterError(f"setting 'map' is {kind!r}; it must be one of {', '.join(map(str, MAP_SETTINGS))}")
    return {"kind": kind, **{key: settings[key] for key in MAP_SETTINGS[kind]}}


def _names(text: Setting) -> tuple[str, ...]:
    return tuple(part.strip() for part in str(text).split(",") if part.strip())


def _bottleneck(settings: PresetSettings, outputs: int) -> PartSpec:
    fields = {
        "sites": _names(settings["sites"]),
        "size": settings["bottleneck"],
        "activation": settings["activation"],
        "input": settings["input"],
        "map": _map(settings),
        "gated": settings["gated"],
        "skip": max(int(settings["skip"]), int(settings["first_block"])),
    }
    return spec.BottleneckSpec.model_validate(fields)


def _lora(settings: PresetSettings, outputs: int) -> PartSpec:
    return spec.LoraSpec.model_validate({**_lora_maps(settings), "alpha": settings["alpha"], "gated": _gated(settings)})


def _vera(settings: PresetSettings, outputs: int) -> PartSpec:
    return spec.VeraSpec.model_validate(
        {**_lora_maps(settings), "seed": settings["projection_seed"], "outer": settings["outer"]}
    )


def _lora_maps(settings: PresetSettings) -> dict[str, Any]:
    named = str(settings["targets"]).strip()
    targets = spec.ALL_LINEAR if named == "all-linear" else _names(named)
    return {"targets": targets, "rank": int(settings["rank"]), "skip": settings["first_block"]}


def _prefix(settings: PresetSettings, outputs: int) -> PartSpec:
    fields = {"length": settings["length"], "gated": _gated(settings), "skip": settings["first_block"]}
    return spec.PrefixSpec.model_validate(fields)


def _gated(settings: PresetSettings) -> Setting:
    """Whether LoRA and prefix have gates of their own; with a central gate they have none."""
    return settings["gated"] and not settings.get("central", False)


def _central_gate(settings: PresetSettings, outputs: int) -> PartSpec:
    return spec.CentralGateSpec.model_validate({"skip": settings["first_block"]})


def _prompt(settings: PresetSettings, outputs: int) -> PartSpec:
    return spec.PromptSpec.model_validate({"length": settings["length"]})


def _bias(settings: PresetSettings, outputs: int) -> PartSpec:
    # Without a head that reads the pooler, the pooler's bias has no effect.
    pooled = settings.get("pooling", "pooler") == "pooler"
    sites = [site for site in _names(settings["sites"]) if site != "pooler" or pooled]
    return spec.BiasSpec.model_validate({"sites": tuple(sites), "skip": settings["first_block"]})


def _scale(settings: PresetSettings, outputs: int) -> PartSpec:
    return spec.ScaleSpec.model_validate({"sites": _names(settings["sites"]), "skip": settings["first_block"]})


def _norm(settings: PresetSettings, outputs: int, **without: bool) -> PartSpec:
    return spec.NormSpec.model_validate({**without, "skip": settings["first_block"]})


def _head(settings: PresetSettings, outputs: int) -> PartSpec:
    return spec.HeadSpec.model_validate(
        {
            "pooling": settings["pooling"],
            "hidden": settings["head_hidden"],
            "projection": settings["head_projection"],
            "outputs": outputs,
            "terms": settings["head_terms"] or None,
        }
    )


BUILDERS: dict[str, Callable[[PresetSettings, int], PartSpec]] = {
    "bottleneck": _bottleneck,
    "lora": _lora,
    "vera": _vera,
    "prefix": _prefix,
    "central_gate": _central_gate,
    "prompt": _prompt,
    "bias": _bias,
    "scale": _scale,
    "norm": _norm,
    "norm_weight": partial(_norm, bias=False),
    "norm_bias": partial(_norm, weight=False),
    "head": _head,
}
