"""Published methods as compositions of parts. A preset is data: part kinds and settings; imports no torch.

Settings are overridden by name (`--set n=4`). `experts`, `share`, `consistency`, `mlp` and `start` shape the training
and leave no trace in the served parts: AdaMix experts are merged, the prefix MLP is evaluated and dropped.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from peltier_backbone.config import BackboneConfig
from pydantic import ValidationError

from peltier_adapters.composition import BUILDERS, Setting, Settings, parse_setting
from peltier_adapters.errors import AdapterError
from peltier_adapters.spec import Parts
from peltier_adapters.validation import sentences

# An encoder's adapter has a head; "auto" is the family's own pooling: BERT's pooler, RoBERTa's first token and dense
# layer.
_HEAD: Settings = {"pooling": "auto", "head_hidden": False}
# The bottleneck of the Compacter paper's t5-base (24) and t5-small (16).
_T5_REDUCTION = 32


@dataclass(frozen=True)
class Variant:
    """A method on one kind of backbone: the learning rate it is trained with, and its settings' defaults."""

    learning_rate: float
    defaults: Settings


@dataclass(frozen=True)
class Preset:
    """One method: its source, its parts in order, and its variants. A T5 variant says only what differs from the
    encoder's settings; None where the method is not defined. `task_prefix` is whether T5 inputs begin with the task's
    name, as the papers had it (Q-C14)."""

    name: str
    source: str
    parts: tuple[str, ...]
    encoder: Variant | None
    t5: Variant | None
    task_prefix: bool = False

    def variant(self, config: BackboneConfig) -> Variant:
        """The method on this backbone, or an `AdapterError`."""
        found = self.t5 if config.generates else self.encoder
        if found is None:
            raise AdapterError(f"preset {self.name!r} is not defined on a {config.family} backbone")
        return found

    def settings(self, overrides: Mapping[str, str], config: BackboneConfig) -> dict[str, Setting]:
        """Defaults on this backbone with `overrides` parsed by each default's type; unknown names are refused."""
        variant = self.variant(config)
        known: dict[str, Setting] = dict(self.encoder.defaults if self.encoder else {})
        known.update(variant.defaults)
        if known.get("bottleneck") == _AUTO_SIZE:
            known["bottleneck"] = max(config.hidden_size // _T5_REDUCTION, 1)
        known.update({} if config.generates else _HEAD)
        for name in overrides:
            if name not in known:
                raise AdapterError(f"preset {self.name!r} has no setting {name!r}; it has {', '.join(sorted(known))}")
        known.update({name: parse_setting(name, text, known[name]) for name, text in overrides.items()})
        return known

    def compose(self, settings: Settings, config: BackboneConfig, *, outputs: int) -> Parts:
        """The served parts of an adapter; on an encoder with a head of `outputs` values."""
        norms = ["norm_weight" if config.generates else "norm"]  # T5's norms have no bias
        kinds = [*self.parts, *(norms if settings.get("norms") else [])]
        if not config.generates:
            kinds, settings = [*kinds, "head"], _own_pooling(settings, config)
        try:
            parts = tuple(BUILDERS[kind](settings, outputs) for kind in kinds)
        except ValidationError as error:
            raise AdapterError(f"preset {self.name!r} cannot be built: {'; '.join(sentences(error))}") from None
        problems = [problem for part in parts for problem in part.problems(config)]
        if problems:
            raise AdapterError(f"preset {self.name!r} does not fit this backbone: {'; '.join(problems)}")
        return parts


def _own_pooling(settings: Settings, config: BackboneConfig) -> Settings:
    if settings["pooling"] != "auto":
        return settings
    if config.family == "roberta":
        return {**settings, "pooling": "first", "head_hidden": True}
    return {**settings, "pooling": "pooler"}


def _bottleneck(sites: str, size: int, activation: str, **more: Setting) -> Settings:
    plain: dict[str, Setting] = {"input": "output", "map": "dense", "n": 4, "rank": 1, "gated": False, "norms": False}
    return {**plain, "skip": 0, "sites": sites, "bottleneck": size, "activation": activation, **more}


_AUTO_SIZE = 0
# Compacter section 5.1: every adapter of the paper on T5 (methods.md 1.1) trains the norms too.
_ON_T5: Settings = {"bottleneck": _AUTO_SIZE, "activation": "gelu_new", "norms": True}
_BOTH = "attention,ffn"
_PREFIX: Settings = {"length": 10, "mlp": 512}
_LORA: Settings = {"targets": "query,value", "rank": 8, "alpha": 16.0}
_PFEIFFER = _bottleneck("ffn", 48, "relu", input="normed")
_ADAMIX: Settings = {"experts": 4, "share": "up", "consistency": 1.0}
_BIASES = "query,key,value,attention_output,intermediate,output"
_RAW: Settings = {"input": "output"}  # T5 has no norm after the residual sum
_PROMPT: Settings = {"length": 100}

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
            "unipelt-ap",
            "UniPELT section 3 (adapter, prefix)",
            ("prefix", "bottleneck"),
            Variant(5e-4, {**_PFEIFFER, **_PREFIX, "gated": True}),
            Variant(5e-4, _RAW),
        ),
        Preset(
            "unipelt-apl",
            "UniPELT section 3 (adapter, prefix, LoRA)",
            ("prefix", "lora", "bottleneck"),
            Variant(5e-4, {**_PFEIFFER, **_PREFIX, **_LORA, "gated": True}),
            Variant(5e-4, _RAW),
        ),
        Preset(
            "adamix",
            "AdaMix section 2 (experts merged)",
            ("bottleneck",),
            Variant(5e-4, {**_bottleneck("ffn", 48, "gelu"), **_ADAMIX}),
            Variant(5e-4, {}),
        ),
    )
}


def find_preset(name: str) -> Preset:
    """The preset called `name`; an unknown name is answered with those there are."""
    if name not in PRESETS:
        raise AdapterError(f"preset {name!r} is unknown; it is one of {', '.join(PRESETS)}")
    return PRESETS[name]


def presets_for(config: BackboneConfig) -> list[Preset]:
    """The presets that are defined on this backbone."""
    return [preset for preset in PRESETS.values() if (preset.t5 if config.generates else preset.encoder) is not None]
