"""Published methods as compositions of parts. A preset is data: part kinds and settings. Imports no torch.

Settings are overridden by name (`--set n=4`). `experts`, `share`, `routing`, `consistency`, `mlp` and `start` apply
only to training: AdaMix experts are merged, and the prefix MLP is evaluated and dropped.
"""

from collections.abc import Iterable, Mapping

from peltier_backbone.checkpoint.config import BackboneConfig

from peltier_adapters.errors import AdapterError, nearest
from peltier_adapters.presets.composition import PresetSettings, Setting
from peltier_adapters.presets.preset import AUTO_SIZE, Preset, Variant


def _bottleneck(sites: str, size: int, activation: str, **more: Setting) -> PresetSettings:
    plain: dict[str, Setting] = {"input": "output", "map": "dense", "n": 4, "rank": 1, "gated": False, "norms": False}
    return {**plain, "skip": 0, "sites": sites, "bottleneck": size, "activation": activation, **more}


# Compacter section 5.1: all adapters of the paper on T5 (docs/methods.md#sites) also train the norms.
_ON_T5: PresetSettings = {"bottleneck": AUTO_SIZE, "activation": "gelu_new", "norms": True}
_BOTH = "attention,ffn"
_PREFIX: PresetSettings = {"length": 10, "mlp": 512}
_LORA: PresetSettings = {"targets": "query,value", "rank": 8, "alpha": 16.0}
_PFEIFFER = _bottleneck("ffn", 48, "relu", input="normed")
_APL: PresetSettings = {**_PFEIFFER, **_PREFIX, **_LORA, "central": False}
# Experts are drawn for the whole batch, as in the paper's code (docs/methods/adamix.md), or for each sample.
_ADAMIX: PresetSettings = {"experts": 4, "share": "up", "routing": "batch", "consistency": 1.0}
_BIASES = "query,key,value,attention_output,intermediate,output"
# T5 and ModernBERT have no norm after the residual sum.
_RAW: PresetSettings = {"input": "output"}
_SUM: PresetSettings = {"input": "sum"}
_PROMPT: PresetSettings = {"length": 100}

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
