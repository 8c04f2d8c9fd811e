"""Parts of adapters: one frozen spec for each part, and the exact shapes of its tensors. Imports no torch.

Shapes are without the slot dimension of a bank. Letters: S sites, B blocks (BERT's layers; T5's encoder
blocks, then its decoder blocks), A attentions (BERT's layers; T5's encoder, decoder and cross-attentions, in this
order), all without those that a part skips, H hidden size, W attention size (H except for some T5), F intermediate
size, d bottleneck, n hypercomplex division, r rank, K LoRA targets, P prefix or prompt length, N norms, C outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Literal, Self, TypeVar

from peltier_backbone.config import BackboneConfig
from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from peltier_adapters.spec.maps import FoldedLphmMap, LphmMap, MapSpec, ServedMapSpec, Shape, Shapes, Size, Spec

T = TypeVar("T")

Site = Literal["attention", "ffn"]
Activation = Literal["relu", "gelu", "gelu_new", "swish"]
LoraTarget = Literal["query", "key", "value", "output", "intermediate", "ffn_output"]
BiasSite = Literal["query", "key", "value", "attention_output", "intermediate", "output", "pooler", "lm_head"]
Pooling = Literal["pooler", "first", "mean", "max", "tokens"]
HeadActivation = Literal["tanh", "relu", "gelu"]
FEED_FORWARD: tuple[LoraTarget, ...] = ("intermediate", "ffn_output")
ALL_LINEAR: tuple[LoraTarget, ...] = ("query", "key", "value", "output", *FEED_FORWARD)
_INTERMEDIATE: tuple[LoraTarget, ...] = ("intermediate",)
_LORA_TENSORS = ("down", "up", "gate.weight", "gate.bias")
MAX_PREFIX = 512


def _gate_shapes(gated: bool, *leading: int, hidden: int) -> Shapes:
    return {"gate.weight": (*leading, hidden), "gate.bias": leading} if gated else {}


def _require_distinct(values: tuple[T, ...], info: ValidationInfo) -> tuple[T, ...]:
    if len(set(values)) < len(values):
        name = info.field_name or ""
        raise ValueError(f"{name} {values} name one {name.removesuffix('s')} twice")
    return values


_Distinct = Annotated[tuple[T, ...], AfterValidator(_require_distinct)]


class _PartSpec(Spec):
    def problems(self, config: BackboneConfig) -> list[str]:
        """Why the part does not fit a backbone of this shape; empty if it does."""
        return []


def _is_zero(value: int) -> bool:
    return value == 0


# The first blocks of each stack that a part leaves alone. Without any, the manifest does not mention them, so that
# releases before this setting read it too.
_Skip = Annotated[int, Field(ge=0, exclude_if=_is_zero)]


def _blocks(skip: int, config: BackboneConfig) -> list[int]:
    return [block for block in range(config.num_blocks) if config.place_block(block) >= skip]


def _attentions(skip: int, config: BackboneConfig) -> list[int]:
    return [attention for attention in range(config.num_attentions) if config.place_attention(attention) >= skip]


def _skip_problems(part: "PartSpec", skip: int, config: BackboneConfig) -> list[str]:
    if _blocks(skip, config):
        return []
    return [f"{part.kind}: skip = {skip} leaves no block of {config.num_layers} with an adapter"]


class BottleneckSpec(_PartSpec):
    """y + up(act(down(x))) at the output y of a sub-layer, before the residual sum.

    `input` is what the adapter reads: `output` the sub-layer's raw output y, `normed` the norm of y + residual, `sum`
    y + residual itself (on T5 and ModernBERT, where no norm follows the sum; docs/methods.md#pfeiffer).
    `gated` scales the adapter's own term with UniPELT's gate on that input. The first `skip` blocks of each stack have
    none (AdapterDrop). On T5 the site `attention` is self-attention; cross-attention has no adapter
    (docs/methods.md#sites).
    """

    kind: Literal["bottleneck"] = "bottleneck"
    sites: _Distinct[Site] = Field(min_length=1, max_length=2)
    size: Size
    activation: Activation
    input: Literal["output", "normed", "sum"] = "output"
    map: MapSpec
    gated: bool = False
    skip: Annotated[int, Field(ge=0)] = 0

    def blocks(self, config: BackboneConfig) -> list[int]:
        """The blocks that have an adapter, in order."""
        return _blocks(self.skip, config)

    def problems(self, config: BackboneConfig) -> list[str]:
        n = getattr(self.map, "n", 1)
        problems = [
            f"bottleneck: n = {n} must divide the {what} {value}"
            for what, value in (("hidden size", config.hidden_size), ("bottleneck size", self.size))
            if value % n
        ]
        # Otherwise the factored form is larger than the dense one, and serving a small file could take gigabytes.
        if isinstance(self.map, LphmMap) and n * n * self.map.rank > config.hidden_size:
            problems.append(
                f"bottleneck: n * n * rank = {n * n * self.map.rank} must not exceed the hidden size "
                f"{config.hidden_size}"
            )
        problems += _skip_problems(self, self.skip, config)
        if self.input == "normed" and config.pre_norm:
            problems.append(
                f"bottleneck: input 'normed' reads a norm after the residual sum, which a {config.family} backbone "
                "does not have"
            )
        return problems

    def shapes(self, config: BackboneConfig) -> Shapes:
        leading = (len(self.sites), len(self.blocks(config)))
        hidden = config.hidden_size
        shapes: Shapes = {}
        for side, before, after in (("down", hidden, self.size), ("up", self.size, hidden)):
            shapes |= {f"{side}.{name}": leading + shape for name, shape in self.map.shapes(before, after).items()}
            if _has_bias(self.map, before, after):
                shapes[f"{side}.bias"] = (*leading, after)
        if isinstance(self.map, LphmMap):
            shapes["rule"] = (self.map.n,) * 3
        return shapes | _gate_shapes(self.gated, *leading, hidden=hidden)


def _has_bias(spec: ServedMapSpec, before: int, after: int) -> bool:
    return not isinstance(spec, FoldedLphmMap) or spec.contracts(before, after)


@dataclass(frozen=True)
class LoraStack:
    """Maps of one shape [before, after]: K `maps` in each of N `numbers`, which are blocks or attentions. Their
    tensors are down [K, N, before, r] and up [K, N, r, after], whose names end with `suffix`."""

    maps: tuple[LoraTarget, ...]
    numbers: Sequence[int]
    before: int
    after: int
    suffix: str = ""

    @property
    def in_blocks(self) -> bool:
        """Whether the maps are those of the feed-forward layers, so that `numbers` are blocks."""
        return self.maps[0] in FEED_FORWARD

    def find(self, tensors: Mapping[str, T]) -> dict[str, T]:
        """The stack's own tensors, by their names without the suffix."""
        names = {name: name + self.suffix for name in _LORA_TENSORS}
        return {name: tensors[own] for name, own in names.items() if own in tensors}


class LoraSpec(_PartSpec):
    """y + scale * (x down) up on linear maps of every block, but for the first `skip` blocks of each stack; a gate
    replaces the scale alpha / rank (docs/methods.md#lora).

    The targets `query`, `key`, `value` and `output` are the projections of every attention, `intermediate` and
    `ffn_output` those of the feed-forward layers. A gated feed-forward layer has two maps `intermediate`: the columns
    that are activated, then their factors."""

    kind: Literal["lora"] = "lora"
    targets: _Distinct[LoraTarget] = Field(min_length=1, max_length=len(ALL_LINEAR))
    rank: Size
    alpha: float = Field(gt=0, allow_inf_nan=False)
    gated: bool = False
    skip: _Skip = 0

    def attentions(self, config: BackboneConfig) -> list[int]:
        """The attentions that it adapts, in order."""
        return _attentions(self.skip, config)

    def problems(self, config: BackboneConfig) -> list[str]:
        return _skip_problems(self, self.skip, config)

    def stacks(self, config: BackboneConfig) -> list[LoraStack]:
        """The targets by the shapes of their maps. Those of shape [H, W] are together."""
        hidden, attention, inner = config.hidden_size, config.attention_size, config.intermediate_size
        attentions, blocks = _attentions(self.skip, config), _blocks(self.skip, config)
        together = {"query", "key", "value", *(["output"] if attention == hidden else [])}
        halves = _INTERMEDIATE * (config.expansion_size // inner)
        apart = (
            LoraStack(("output",), attentions, attention, hidden, ".output"),
            LoraStack(halves, blocks, hidden, inner, ".intermediate"),
            LoraStack(("ffn_output",), blocks, inner, hidden, ".ffn_output"),
        )
        shared = tuple(target for target in self.targets if target in together)
        first = [LoraStack(shared, attentions, hidden, attention)] if shared else []
        return first + [one for one in apart if one.maps[0] in self.targets and one.maps[0] not in together]

    def shapes(self, config: BackboneConfig) -> Shapes:
        shapes: Shapes = {}
        for stack in self.stacks(config):
            leading = len(stack.maps), len(stack.numbers)
            own: Shapes = {"down": (*leading, stack.before, self.rank), "up": (*leading, self.rank, stack.after)}
            own |= _gate_shapes(self.gated, *leading, hidden=stack.before)
            shapes |= {name + stack.suffix: shape for name, shape in own.items()}
        return shapes


class PrefixSpec(_PartSpec):
    """P extra keys and values in front of those of every attention, but for those in the first `skip` blocks of each
    stack; a gate scales both (UniPELT). On T5 the encoder, the decoder and cross-attention have prefixes of their own,
    without a position bias (docs/methods.md#prefix).

    With `shifts_positions` an encoder's text begins at position P, as if the prefix were tokens before it (PEFT)."""

    kind: Literal["prefix"] = "prefix"
    length: Annotated[int, Field(ge=1, le=MAX_PREFIX)]
    gated: bool = False
    shifts_positions: bool = False
    skip: _Skip = 0

    def attentions(self, config: BackboneConfig) -> list[int]:
        """The attentions that have a prefix, in order."""
        return _attentions(self.skip, config)

    def problems(self, config: BackboneConfig) -> list[str]:
        problems = _skip_problems(self, self.skip, config)
        if self.shifts_positions and config.generates:
            problems.append("prefix: shifts_positions is for encoders; T5 has no positions to count from")
        return problems

    def shapes(self, config: BackboneConfig) -> Shapes:
        num = len(self.attentions(config))
        shape = (num, self.length, config.attention_size)
        return {"keys": shape, "values": shape} | _gate_shapes(self.gated, num, hidden=config.hidden_size)


class CentralGateSpec(_PartSpec):
    """One gate per attention that divides between LoRA and the prefix, which then have no gates and no scale of their
    own: softmax over the row means of relu(x w + b), the first output for LoRA, the second for the prefix (UniPELT's
    `add_central_gate`, docs/methods.md#unipelt). Each share is computed from the input x of its part. For
    a value in T5's cross-attention that is the encoder's output, so the shares need not sum to 1. It has the `skip` of
    the parts that it divides between."""

    kind: Literal["central_gate"] = "central_gate"
    skip: _Skip = 0

    def problems(self, config: BackboneConfig) -> list[str]:
        return _skip_problems(self, self.skip, config)

    def shapes(self, config: BackboneConfig) -> Shapes:
        num = len(_attentions(self.skip, config))
        return {"weight": (num, config.hidden_size, 2), "bias": (num, 2)}


class PromptSpec(_PartSpec):
    """P soft tokens in front of the encoder's input (prompt tuning, docs/methods.md#prompt)."""

    kind: Literal["prompt"] = "prompt"
    length: Annotated[int, Field(ge=1, le=MAX_PREFIX)]

    def problems(self, config: BackboneConfig) -> list[str]:
        return [] if config.generates else [f"prompt: a {config.family} backbone has no soft prompts; T5 has"]

    def shapes(self, config: BackboneConfig) -> Shapes:
        return {"weight": (self.length, config.hidden_size)}


class BiasSpec(_PartSpec):
    """Biases that replace the backbone's at the named sites, but for those in the first `skip` blocks of each stack. T5
    and ModernBERT have none, so they are added there (BitFit, docs/methods.md#bitfit)."""

    kind: Literal["bias"] = "bias"
    sites: _Distinct[BiasSite] = Field(min_length=1, max_length=8)
    skip: _Skip = 0

    def numbers(self, site: BiasSite, config: BackboneConfig) -> list[int]:
        """The blocks or attentions with a bias of their own at `site`, in order; the pooler and T5's output layer are
        number 0."""
        match site:
            case "pooler" | "lm_head":
                return [0]
            case "intermediate" | "output":
                return _blocks(self.skip, config)
            case "attention_output" | "query" | "key" | "value":
                return _attentions(self.skip, config)

    def problems(self, config: BackboneConfig) -> list[str]:
        problems = _skip_problems(self, self.skip, config)
        absent = "pooler" if config.generates else "lm_head"
        return [*problems, f"bias: a {config.family} backbone has no {absent!r}"] if absent in self.sites else problems

    def shapes(self, config: BackboneConfig) -> Shapes:
        return {site: self._shape(site, config) for site in self.sites}

    def _shape(self, site: BiasSite, config: BackboneConfig) -> Shape:
        num = len(self.numbers(site, config))
        match site:
            case "pooler":
                return (config.hidden_size,)
            case "lm_head":
                return (config.vocab_size,)
            case "intermediate":
                return (num, config.expansion_size)
            case "output" | "attention_output":
                return (num, config.hidden_size)
            case "query" | "key" | "value":
                return (num, config.attention_size)


class NormSpec(_PartSpec):
    """Norm weights and/or biases that replace the backbone's, in the backbone's order of norms (docs/methods.md#norms).
    With `skip` the norms before and in the first blocks of each stack are the backbone's own.

    The norms of T5 and ModernBERT have no bias, so one is added, except to T5's two final norms
    (docs/methods.md#bitfit). ELECTRA's norm of the embeddings keeps its weights if it is not as wide as the hidden
    states."""

    kind: Literal["norm"] = "norm"
    weight: bool = True
    bias: bool = True
    skip: _Skip = 0

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.weight or self.bias):
            raise ValueError("a norm part replaces the weight, the bias or both")
        return self

    def norms(self, config: BackboneConfig) -> list[int]:
        """The norms that it replaces, in order."""
        first, narrow = self.skip or -1, config.narrow_norms
        return [index for index in range(config.num_norms) if config.place_norm(index) >= first and index not in narrow]

    def biased(self, config: BackboneConfig) -> list[int]:
        """The norms that may have a bias."""
        final = (2 * config.num_layers, config.num_norms - 1) if config.generates else ()
        return [index for index in self.norms(config) if index not in final]

    def problems(self, config: BackboneConfig) -> list[str]:
        return _skip_problems(self, self.skip, config)

    def shapes(self, config: BackboneConfig) -> Shapes:
        weight: Shapes = {"weight": (len(self.norms(config)), config.hidden_size)} if self.weight else {}
        return weight | ({"bias": (len(self.biased(config)), config.hidden_size)} if self.bias else {})


class HeadSpec(_PartSpec):
    """The output layer of a task on an encoder, over one vector per row or over every token. T5 answers in text and has
    no head.

    `pooling` picks the vector: `pooler` the backbone's tanh pooler on the first token, `first` the first token, `mean`
    the mean over tokens, `max` the largest value over tokens in each place; with `tokens` the head reads each token.
    `hidden` adds a dense layer before it, as in RoBERTa's head, with this `activation`: RoBERTa's tanh, DistilBERT's
    relu or ELECTRA's gelu. Without `projection` the vector itself is the output, and the head has no tensors.
    """

    kind: Literal["head"] = "head"
    pooling: Pooling = "pooler"
    hidden: bool = False
    # The files of most heads do not mention these, so older releases read them too.
    activation: Annotated[HeadActivation, Field(exclude_if="tanh".__eq__)] = "tanh"
    projection: Annotated[bool, Field(exclude_if=bool)] = True
    outputs: Size

    @model_validator(mode="after")
    def _hidden_is_projected(self) -> Self:
        if self.hidden and not self.projection:
            raise ValueError("a head without a projection has no hidden layer")
        return self

    def problems(self, config: BackboneConfig) -> list[str]:
        if config.generates:
            return ["head: T5 answers in text and takes no head"]
        if not self.projection and self.outputs != config.hidden_size:
            sizes = f"{self.outputs} outputs, the backbone {config.hidden_size} values"
            return [f"head: without a projection its outputs are the pooled values; it has {sizes}"]
        return []

    def shapes(self, config: BackboneConfig) -> Shapes:
        if not self.projection:
            return {}
        hidden = config.hidden_size
        dense: Shapes = {"dense.weight": (hidden, hidden), "dense.bias": (hidden,)} if self.hidden else {}
        return dense | {"weight": (hidden, self.outputs), "bias": (self.outputs,)}


PartSpec = Annotated[
    BottleneckSpec | LoraSpec | PrefixSpec | CentralGateSpec | PromptSpec | BiasSpec | NormSpec | HeadSpec,
    Field(discriminator="kind"),
]
Parts = tuple[PartSpec, ...]


def part_conflicts(parts: Parts) -> list[str]:
    """Why these parts cannot be combined; empty if they can."""
    kinds = [part.kind for part in parts]
    if "central_gate" not in kinds:
        return []
    scaled = [part for part in parts if isinstance(part, LoraSpec | PrefixSpec)]
    if len({part.kind for part in scaled}) < 2 or any(part.gated for part in scaled):
        return ["central_gate: it needs a lora and a prefix without gates of their own"]
    skips = {part.skip for part in parts if isinstance(part, LoraSpec | PrefixSpec | CentralGateSpec)}
    if len(skips) > 1:
        return [f"central_gate: it, the lora and the prefix skip {sorted(skips)} blocks; they must skip equally many"]
    fed = [target for part in scaled if isinstance(part, LoraSpec) for target in part.targets if target in FEED_FORWARD]
    if fed:
        return [f"central_gate: it divides between the parts of an attention; lora has the target {fed[0]!r}"]
    return []


def part_problems(parts: Parts, config: BackboneConfig) -> list[str]:
    """Why these parts cannot be combined, or do not fit a backbone of this shape; empty if they can and do."""
    problems = [problem for part in parts for problem in part.problems(config)]
    return [*part_conflicts(parts), *problems, *_narrow_output(parts, config)]


def _narrow_output(parts: Parts, config: BackboneConfig) -> list[str]:
    """The central gate reads inputs of its attention, which are H wide."""
    targets = {target for part in parts if isinstance(part, LoraSpec) for target in part.targets}
    central = any(isinstance(part, CentralGateSpec) for part in parts)
    if not central or "output" not in targets or config.attention_size == config.hidden_size:
        return []
    sizes = f"{config.attention_size} and {config.hidden_size}"
    return [f"central_gate: lora target 'output' needs an attention as wide as the hidden size; here they are {sizes}"]


def tensor_shapes(parts: Parts, config: BackboneConfig) -> Shapes:
    """The exact tensors of an adapter, named `part.tensor`, with their shapes."""
    return {f"{part.kind}.{name}": shape for part in parts for name, shape in part.shapes(config).items()}


def pooler_users(parts: Parts) -> list[str]:
    """The kinds of the parts that need a backbone with a pooler."""
    return [
        part.kind
        for part in parts
        if (isinstance(part, HeadSpec) and part.pooling == "pooler")
        or (isinstance(part, BiasSpec) and "pooler" in part.sites)
    ]


def prompt_length(parts: Parts) -> int:
    """The number of soft tokens before a row's own tokens."""
    return sum(part.length for part in parts if isinstance(part, PromptSpec))


def position_offset(parts: Parts) -> int:
    """The number of an encoder's positions that a row's prefix occupies."""
    return sum(part.length for part in parts if isinstance(part, PrefixSpec) and part.shifts_positions)


def count_parameters(parts: Parts, config: BackboneConfig, *, head: bool = False) -> int:
    """Elements of the adapter; without the task head, as in the papers, unless `head`."""
    counted = tuple(part for part in parts if head or part.kind != "head")
    return sum(prod(shape) for shape in tensor_shapes(counted, config).values())
