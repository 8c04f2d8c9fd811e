"""The drawing of a method: the block, marked where the parts of its preset act, and the inside of its first part."""

from collections.abc import Iterator, Sequence

from peltier_adapters.presets.baselines import Baseline, find_method
from peltier_adapters.presets.composition import PresetSettings
from peltier_adapters.presets.presets import Preset
from peltier_adapters.spec.bottleneck import BottleneckSpec
from peltier_adapters.spec.lora import LoraSpec, VeraSpec
from peltier_adapters.spec.parts import PartSpec
from peltier_adapters.spec.prefix import CentralGateSpec, PrefixSpec, PromptSpec
from peltier_adapters.spec.replaced import BiasSpec, NormSpec
from peltier_adapters.spec.scale import ScaleSpec

from docs.generator.methods import block, inside
from docs.generator.methods.canvas import COLOURS, Place, box, document, text
from docs.generator.methods.method import Method
from docs.generator.methods.shapes import BERT, T5

_BIASES = {"attention_output": "output", "output": "ffn_output"}
# The activated states are those after `intermediate`.
_SCALED = {**_BIASES, "activated": "intermediate"}
# Beside the arrows to the query, or to key and value.
_BETWEEN = {"query": Place(128, block.FLOW - 47, 0), "value": Place(128, block.FLOW + 9, 0)}
_READS = {"output": "z = f", "normed": "z = norm(f + a)", "sum": "z = f + a"}
_LEGEND = (
    ("frozen", "frozen, shared by all tasks"),
    ("bottleneck", "bottleneck"),
    ("lora", "LoRA"),
    ("prefix", "prefix"),
    ("prompt", "prompt"),
    ("bias", "values that replace the backbone's"),
    ("gate", "gate"),
)


def drawing(method: Method) -> str:
    """The SVG of the method's first preset, on a BERT or, if it is not defined there, on a T5."""
    found = find_method(method.presets[0])
    marks = list(_baseline()) if isinstance(found, Baseline) else list(_preset(found))
    kinds = {kind for kind, (fill, _) in COLOURS.items() if any(f'fill="{fill}"' in mark for mark in marks)}
    title = f"Where {method.presets[0]} acts in a block, and what it computes"
    return document(title, 514, [*block.block(), *marks, *_frame(kinds)])


def _preset(preset: Preset) -> Iterator[str]:
    config = BERT if preset.encoder is not None else T5
    settings = preset.settings({}, config)
    parts = [part for part in preset.compose(settings, config, outputs=2) if part.kind != "head"]
    for part in parts:
        yield from _mark(part, settings)
    yield from _inside(_main(parts), settings)


def _main(parts: Sequence[PartSpec]) -> PartSpec:
    """The part whose inside is drawn: a bottleneck if there is one."""
    return next((part for part in parts if isinstance(part, BottleneckSpec)), parts[0])


def _mark(part: PartSpec, settings: PresetSettings) -> Iterator[str]:
    match part:
        case BottleneckSpec():
            yield from _bottlenecks(part, settings)
        case LoraSpec() | VeraSpec():
            yield from _products(part)
        case PrefixSpec():
            yield from _prefixes(part)
        case PromptSpec():
            yield from block.cells(40, block.FLOW - 30, "prompt")
        case BiasSpec() | NormSpec():
            yield from _own_values(part)
        case ScaleSpec():
            for site in part.sites:
                yield from block.chip(block.MAPS[_SCALED.get(site, site)], "× l", "bias")
        case CentralGateSpec():
            yield from block.chip(_BETWEEN["query"], "G", "gate")
        case _:
            raise ValueError(f"no drawing knows the part {part.kind!r}")


def _bottlenecks(part: BottleneckSpec, settings: PresetSettings) -> Iterator[str]:
    experts = int(settings.get("experts", 1))
    words = f"{part.size} wide" if experts == 1 else f"{experts} experts, {part.size} wide"
    for site in part.sites:
        yield from block.adapter(site, words, reads=part.input, gated=part.gated, copies=min(experts, 4))


def _products(part: LoraSpec | VeraSpec) -> Iterator[str]:
    words, gated = ("+ A d B b", False) if isinstance(part, VeraSpec) else ("+ A B", part.gated)
    for target in part.targets:
        yield from block.chip(block.MAPS[target], words, "lora", gate="G" if gated else "")


def _prefixes(part: PrefixSpec) -> Iterator[str]:
    for place in (block.MAPS["key"], block.MAPS["value"]):
        yield from block.cells(place.x - place.width / 2 - 8, place.y - 4, "prefix")
    if part.gated:
        yield from block.chip(_BETWEEN["value"], "G", "gate")


def _own_values(part: BiasSpec | NormSpec) -> Iterator[str]:
    """Values in place of the backbone's; those of the pooler and the output layer are outside of the block."""
    if isinstance(part, NormSpec):
        words = "w, b" if part.weight and part.bias else "w" if part.weight else "b"
        places = [(place, words) for place in block.NORMS.values()]
    else:
        names = (_BIASES.get(name, name) for name in part.sites)
        places = [(block.MAPS[name], "b") for name in names if name in block.MAPS]
    for place, words in places:
        yield from block.chip(place, words, part.kind)


def _inside(part: PartSpec, settings: PresetSettings) -> Iterator[str]:
    match part:
        case BottleneckSpec():
            yield from inside.bottleneck("H × d", "d × H", part.activation, _READS[part.input], gated=part.gated)
            yield from _map(part, settings)
        case LoraSpec():
            yield from inside.lora(part.gated)
        case VeraSpec():
            yield from inside.vera()
        case PrefixSpec():
            yield from inside.prefix(part.gated)
        case PromptSpec():
            yield from inside.prompt()
        case BiasSpec():
            yield from inside.biases()
        case ScaleSpec():
            yield from inside.scales()
        case _:
            raise ValueError(f"no drawing knows the inside of {part.kind!r}")


def _map(part: BottleneckSpec, settings: PresetSettings) -> Iterator[str]:
    match part.map.kind:
        case "lowrank":
            yield from inside.sum_of_products("s", "t", "rank r")
        case "phm":
            yield from inside.sum_of_products("Aᵢ", "Bᵢ", "sum over i = 1 … n")
        case "lphm":
            yield from inside.sum_of_products("Aᵢ", "sᵢ tᵢ", "one A for all maps")
        case "dense" if "experts" in settings:
            yield text(858, inside.ROW + 5, "D, U = mean of the experts'", note=True)


def _baseline() -> Iterator[str]:
    for name, place in block.MAPS.items():
        yield box(place, block.label(name), "trained")
    for place in block.NORMS.values():
        yield box(place, "norm", "trained")
    yield box(block.TOKENS, "tokens", "trained")
    yield from inside.every_weight()


def _frame(kinds: set[str]) -> Iterator[str]:
    """The line between the block and the inside, and what the colours mean."""
    yield '<line x1="20" y1="322" x2="940" y2="322" stroke="#ddd"/>'
    yield text(20, 342, "inside", anchor="start", note=True)
    x = 90.0
    shown = set[str]()
    for kind, words in _LEGEND:
        fill, stroke = COLOURS[kind]
        if (kind != "frozen" and kind not in kinds) or fill in shown:
            continue
        shown.add(fill)
        yield f'<rect x="{x:g}" y="332" width="12" height="12" rx="2" fill="{fill}" stroke="{stroke}"/>'
        yield text(x + 18, 342, words, anchor="start", note=True)
        x += 40 + 6.4 * len(words)
