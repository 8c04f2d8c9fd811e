"""Published methods as compositions of parts. A preset is data: part kinds and settings. Imports no torch.

Settings are overridden by name (`--set n=4`). `experts`, `share`, `routing`, `consistency`, `mlp` and `start` apply
only to training: AdaMix experts are merged, and the prefix MLP is evaluated and dropped.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from peltier_backbone.checkpoint.config import BackboneConfig, ModernBertConfig
from pydantic import ValidationError

from peltier_adapters.errors import AdapterError, nearest, sentences
from peltier_adapters.presets.composition import BUILDERS, MAP_SETTINGS, PresetSettings, Setting, override
from peltier_adapters.spec.parts import Parts, part_problems

# The head of an encoder's adapter. "auto" is BERT's pooler, and elsewhere a dense layer on the first token, as in
# RoBERTa, or on the pooling that the configuration of a ModernBERT names. Without a projection the pooled vector is the
# output, as an embedding.
HEAD: PresetSettings = {"pooling": "auto", "head_hidden": False, "head_projection": True, "head_terms": 0}
# Blocks of each stack below this one stay the backbone's own. Soft prompts change what the first block reads, so a
# preset of prompts alone has no such setting.
FIRST_BLOCK: PresetSettings = {"first_block": 0}
# The bottleneck of the Compacter paper's t5-base (24) and t5-small (16).
_T5_REDUCTION = 32
AUTO_SIZE = 0
# Compacter section 5.1: all adapters of the paper on T5 (docs/methods.md#sites) also train the norms.
_ON_T5: PresetSettings = {"bottleneck": AUTO_SIZE, "activation": "gelu_new", "norms": True}
_BOTH = "attention,ffn"
_PREFIX: PresetSettings = {"length": 10, "mlp": 512}
_LORA: PresetSettings = {"targets": "query,value", "rank": 8, "alpha": 16.0}
# Experts are drawn for the whole batch, as in the paper's code (docs/methods/adamix.md), or for each sample.
_ADAMIX: PresetSettings = {"experts": 4, "share": "up", "routing": "batch", "consistency": 1.0}
_BIASES = "query,key,value,attention_output,intermediate,output"
# T5 and ModernBERT have no norm after the residual sum.
_RAW: PresetSettings = {"input": "output"}
_SUM: PresetSettings = {"input": "sum"}
_PROMPT: PresetSettings = {"length": 100}


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
        found = override(self.name, known, overrides)
        self._check_map(found, overrides)
        return with_given_head(found, overrides, config)

    def _check_map(self, settings: PresetSettings, overrides: Mapping[str, str]) -> None:
        """Refuse a setting of another kind of map."""
        used = {*MAP_SETTINGS.get(settings.get("map", ""), ()), *(["rank"] if {"lora", "vera"} & {*self.parts} else [])}
        for name in ("n", "rank"):
            if name in overrides and name not in used:
                raise AdapterError(f"setting {name!r} is {overrides[name]}; a map of kind {settings['map']!r} has none")

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


def with_given_head(
    settings: dict[str, Setting], overrides: Mapping[str, str], config: BackboneConfig
) -> dict[str, Setting]:
    """`settings` in which a given `head_hidden` holds, also where the pooling is "auto"."""
    if "head_hidden" not in overrides:
        return settings
    return {**own_pooling(settings, config), "head_hidden": settings["head_hidden"]}


def own_pooling(settings: PresetSettings, config: BackboneConfig) -> PresetSettings:
    """`settings` with the family's pooling and head instead of "auto"."""
    if settings["pooling"] != "auto":
        return settings
    if config.pooled:
        return {**settings, "pooling": "pooler"}
    pooling = config.classifier_pooling if isinstance(config, ModernBertConfig) else "first"
    return {**settings, "pooling": pooling, "head_hidden": True}


def _bottleneck(sites: str, size: int, activation: str, **more: Setting) -> PresetSettings:
    plain: dict[str, Setting] = {"input": "output", "map": "dense", "n": 4, "rank": 1, "gated": False, "norms": False}
    return {**plain, "skip": 0, "sites": sites, "bottleneck": size, "activation": activation, **more}


_PFEIFFER = _bottleneck("ffn", 48, "relu", input="normed")
_APL: PresetSettings = {**_PFEIFFER, **_PREFIX, **_LORA, "central": False}

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "houlsby",
            "Houlsby et al. 2019",
            ("bottleneck",),
            Variant(3e-4, _bottleneck(_BOTH, 48, "swish")),
            Variant(3e-4, _ON_T5),
        ),
        Preset(
            "pfeiffer",
            "UniPELT section 2.2: after the FFN, normed input; on T5 Compacter section 5.1: after self-attention",
            ("bottleneck",),
            Variant(1e-4, _PFEIFFER),
            Variant(3e-4, {**_ON_T5, **_RAW, "sites": "attention"}),
            pre_norm=_SUM,
        ),
        Preset(
            "pfeiffer-attention",
            "Compacter section 5.1: after self-attention, raw output",
            ("bottleneck",),
            Variant(3e-4, _bottleneck("attention", 48, "gelu_new")),
            Variant(3e-4, _ON_T5),
        ),
        Preset(
            "pfeiffer-ffn",
            "UniPELT section 2.2: after the FFN; input normed, on T5 and ModernBERT the residual sum (AdapterHub)",
            ("bottleneck",),
            Variant(1e-4, _PFEIFFER),
            Variant(1e-4, _SUM),
            pre_norm=_SUM,
        ),
        Preset(
            "adapterdrop",
            "Compacter section 5.1: no adapters in the first 5 blocks",
            ("bottleneck",),
            Variant(3e-4, _bottleneck(_BOTH, 48, "swish", skip=5)),
            Variant(3e-4, _ON_T5),
        ),
        Preset(
            "lowrank",
            "Compacter section 5.1: Adapter-LowRank",
            ("bottleneck",),
            Variant(3e-3, _bottleneck(_BOTH, 24, "gelu_new", map="lowrank")),
            Variant(3e-3, _ON_T5),
        ),
        Preset(
            "phm",
            "Compacter Eq. 3-4: PHM-Adapter",
            ("bottleneck",),
            Variant(3e-3, _bottleneck(_BOTH, 24, "gelu_new", map="phm")),
            Variant(3e-3, _ON_T5),
        ),
        Preset(
            "compacter",
            "Compacter Eq. 5-6",
            ("bottleneck",),
            Variant(3e-3, _bottleneck(_BOTH, 24, "gelu_new", map="lphm", norms=True)),
            Variant(3e-3, _ON_T5),
        ),
        Preset(
            "compacter++",
            "Compacter section 4 (after the FFN only)",
            ("bottleneck",),
            Variant(3e-3, _bottleneck("ffn", 24, "gelu_new", map="lphm", norms=True)),
            Variant(3e-3, _ON_T5),
        ),
        Preset(
            "lora",
            "LoRA on query and value",
            ("lora",),
            Variant(5e-4, {**_LORA, "gated": False}),
            Variant(5e-4, {}),
        ),
        Preset(
            "vera",
            "VeRA, Kopiczko et al. 2024",
            ("vera",),
            Variant(1e-2, {"targets": "query,value", "rank": 32, "projection_seed": 0, "outer": True}),
            Variant(1e-2, {}),
        ),
        Preset("prefix", "Prefix tuning", ("prefix",), Variant(2e-4, {**_PREFIX, "gated": False}), Variant(2e-4, {})),
        Preset(
            "prompt-r",
            "Prompt tuning, uniform start",
            ("prompt",),
            None,
            Variant(3e-2, {**_PROMPT, "start": "random"}),
            task_prefix=True,
        ),
        Preset(
            "prompt-t",
            "Prompt tuning, started from the vocabulary",
            ("prompt",),
            None,
            Variant(3e-1, {**_PROMPT, "start": "vocabulary"}),
            task_prefix=True,
        ),
        Preset(
            "bitfit",
            "BitFit",
            ("bias", "norm_bias"),
            Variant(1e-4, {"sites": f"{_BIASES},pooler"}),
            Variant(3e-4, {"sites": f"{_BIASES},lm_head"}),
            task_prefix=True,
        ),
        Preset(
            "ia3",
            "(IA)3, Liu et al. 2022, section 3.3",
            ("scale",),
            Variant(3e-3, {"sites": "key,value,activated"}),
            Variant(3e-3, {}),
        ),
        Preset(
            "unipelt-ap",
            "UniPELT section 3 (adapter, prefix)",
            ("prefix", "bottleneck"),
            Variant(5e-4, {**_PFEIFFER, **_PREFIX, "gated": True}),
            Variant(5e-4, _RAW),
            pre_norm=_RAW,
        ),
        Preset(
            "unipelt-apl",
            "UniPELT section 3 (adapter, prefix, LoRA)",
            ("prefix", "lora", "bottleneck"),
            Variant(5e-4, {**_APL, "gated": True}),
            Variant(5e-4, _RAW),
            pre_norm=_RAW,
        ),
        Preset(
            "unipelt-ap-nogate",
            "UniPELT Table 3, NoGate (adapter, prefix)",
            ("prefix", "bottleneck"),
            Variant(5e-4, {**_PFEIFFER, **_PREFIX}),
            Variant(5e-4, _RAW),
            pre_norm=_RAW,
        ),
        Preset(
            "unipelt-apl-nogate",
            "UniPELT without its gates (adapter, prefix, LoRA)",
            ("prefix", "lora", "bottleneck"),
            Variant(5e-4, _APL),
            Variant(5e-4, _RAW),
            pre_norm=_RAW,
        ),
        Preset(
            "unipelt-apl-central",
            "UniPELT's code: one gate divides between LoRA and prefix",
            ("prefix", "lora", "bottleneck"),
            Variant(5e-4, {**_APL, "gated": True, "central": True}),
            Variant(5e-4, _RAW),
            pre_norm=_RAW,
        ),
        Preset(
            "adamix",
            "AdaMix section 2 (experts merged)",
            ("bottleneck",),
            Variant(5e-4, {**_bottleneck("ffn", 48, "gelu"), **_ADAMIX}),
            Variant(5e-4, {}),
        ),
        Preset(
            "adamix-lora",
            "AdaMix section 2 on LoRA (experts merged)",
            ("lora",),
            Variant(5e-4, {**_LORA, "rank": 4, "alpha": 32.0, "gated": False, **_ADAMIX}),
            Variant(2e-4, {"experts": 8}),
        ),
    )
}


def find_preset(name: str, known: Iterable[str] = PRESETS) -> Preset:
    """The preset `name`; an `AdapterError` for an unknown name lists the `known` ones."""
    if name not in PRESETS:
        known = list(known)
        raise AdapterError(f"preset {name!r} is unknown{nearest(name, known)}; it is one of {', '.join(known)}")
    return PRESETS[name]


def presets_for(config: BackboneConfig) -> list[Preset]:
    """The presets that are defined on this backbone."""
    return [preset for preset in PRESETS.values() if (preset.t5 if config.generates else preset.encoder) is not None]
