"""Published methods as compositions of parts. A preset is data: part kinds and settings; imports no torch.

Settings are overridden by name (`--set n=4`). `experts`, `share`, `consistency` and `mlp` shape the training and leave
no trace in the served parts: AdaMix experts are merged, the prefix MLP is evaluated and dropped.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from peltier_backbone.config import BackboneConfig
from pydantic import ValidationError

from peltier_adapters.composition import BUILDERS, Setting, Settings, parse_setting
from peltier_adapters.errors import AdapterError
from peltier_adapters.spec import Parts
from peltier_adapters.validation import sentences

# Every adapter has a head; "auto" is the family's own pooling: BERT's pooler, RoBERTa's first token and dense layer.
_HEAD: Settings = {"pooling": "auto", "head_hidden": False}


@dataclass(frozen=True)
class Preset:
    """One method: its source, the learning rate it is trained with, its parts in order, its settings' defaults."""

    name: str
    source: str
    learning_rate: float
    parts: tuple[str, ...]
    defaults: Settings

    def settings(self, overrides: Mapping[str, str]) -> dict[str, Setting]:
        """Defaults with `overrides` parsed by each default's type; unknown names are refused."""
        known: dict[str, Setting] = dict(self.defaults)
        known.update(_HEAD)
        for name in overrides:
            if name not in known:
                raise AdapterError(f"preset {self.name!r} has no setting {name!r}; it has {', '.join(sorted(known))}")
        known.update({name: parse_setting(name, text, known[name]) for name, text in overrides.items()})
        return known

    def compose(self, settings: Settings, config: BackboneConfig, *, outputs: int) -> Parts:
        """The served parts of an adapter with a head of `outputs` values."""
        kinds = [*self.parts, *(["norm"] if settings.get("norms") else []), "head"]
        if settings["pooling"] == "auto":
            own: dict[str, Settings] = {
                "bert": {"pooling": "pooler"},
                "roberta": {"pooling": "first", "head_hidden": True},
            }
            settings = {**settings, **own[config.family]}
        try:
            parts = tuple(BUILDERS[kind](settings, outputs) for kind in kinds)
        except ValidationError as error:
            raise AdapterError(f"preset {self.name!r} cannot be built: {'; '.join(sentences(error))}") from None
        problems = [problem for part in parts for problem in part.problems(config)]
        if problems:
            raise AdapterError(f"preset {self.name!r} does not fit this backbone: {'; '.join(problems)}")
        return parts


def _bottleneck(sites: str, size: int, activation: str, **more: Setting) -> Settings:
    plain: dict[str, Setting] = {"input": "output", "map": "dense", "n": 4, "rank": 1, "gated": False, "norms": False}
    return {**plain, "sites": sites, "bottleneck": size, "activation": activation, **more}


_BOTH = "attention,ffn"
_PREFIX: Settings = {"length": 10, "mlp": 512}
_LORA: Settings = {"targets": "query,value", "rank": 8, "alpha": 16.0}
_PFEIFFER = _bottleneck("ffn", 48, "relu", input="normed")
_ADAMIX: Settings = {"experts": 4, "share": "up", "consistency": 1.0}
_BIASES = "query,key,value,attention_output,intermediate,output,pooler"

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("houlsby", "Houlsby et al. 2019", 3e-4, ("bottleneck",), _bottleneck(_BOTH, 48, "swish")),
        Preset("pfeiffer", "UniPELT section 2.2 (after the FFN, normed input)", 1e-4, ("bottleneck",), _PFEIFFER),
        Preset(
            "compacter",
            "Compacter Eq. 5-6",
            3e-3,
            ("bottleneck",),
            _bottleneck(_BOTH, 24, "gelu_new", map="lphm", norms=True),
        ),
        Preset(
            "compacter++",
            "Compacter section 4 (after the FFN only)",
            3e-3,
            ("bottleneck",),
            _bottleneck("ffn", 24, "gelu_new", map="lphm", norms=True),
        ),
        Preset("lora", "LoRA on query and value", 5e-4, ("lora",), {**_LORA, "gated": False}),
        Preset("prefix", "Prefix tuning", 2e-4, ("prefix",), {**_PREFIX, "gated": False}),
        Preset("bitfit", "BitFit", 1e-4, ("bias", "norm_bias"), {"sites": _BIASES}),
        Preset(
            "unipelt-ap",
            "UniPELT section 3 (adapter, prefix)",
            5e-4,
            ("prefix", "bottleneck"),
            {**_PFEIFFER, **_PREFIX, "gated": True},
        ),
        Preset(
            "unipelt-apl",
            "UniPELT section 3 (adapter, prefix, LoRA)",
            5e-4,
            ("prefix", "lora", "bottleneck"),
            {**_PFEIFFER, **_PREFIX, **_LORA, "gated": True},
        ),
        Preset(
            "adamix",
            "AdaMix section 2 (experts merged)",
            5e-4,
            ("bottleneck",),
            {**_bottleneck("ffn", 48, "gelu"), **_ADAMIX},
        ),
    )
}


def find_preset(name: str) -> Preset:
    """The preset called `name`; an unknown name is answered with those there are."""
    if name not in PRESETS:
        raise AdapterError(f"preset {name!r} is unknown; it is one of {', '.join(PRESETS)}")
    return PRESETS[name]
