"""What an adapter is made of: one frozen spec a part, and the exact tensors that each part owns. Imports no torch.

Shapes are without the slot dimension that a bank puts in front. Letters: S sites, L layers, H hidden size,
d bottleneck, n hypercomplex division, r rank, K LoRA targets, P prefix length, N norms, C outputs. Maps multiply from
the right: `x [tokens, in] @ W [in, out]`.
"""

from typing import Annotated, Literal, Self

from peltier_backbone.config import BackboneConfig
from pydantic import BaseModel, ConfigDict, Field, model_validator

Shape = tuple[int, ...]
Shapes = dict[str, Shape]
Site = Literal["attention", "ffn"]
Activation = Literal["relu", "gelu", "gelu_new", "swish"]
LoraTarget = Literal["query", "key", "value", "output"]
BiasSite = Literal["query", "key", "value", "attention_output", "intermediate", "output", "pooler"]

MAX_SIZE = 4096
Size = Annotated[int, Field(ge=1, le=MAX_SIZE)]


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DenseMap(_Spec):
    """W [in, out]: the Houlsby and Pfeiffer adapters."""

    kind: Literal["dense"] = "dense"

    def shapes(self, before: int, after: int) -> Shapes:
        return {"weight": (before, after)}


class LowRankMap(_Spec):
    """W = left right, rank r (Adapter-LowRank, methods-quirks Q-C6: a matrix product)."""

    kind: Literal["lowrank"] = "lowrank"
    rank: Size = 1

    def shapes(self, before: int, after: int) -> Shapes:
        return {"left": (before, self.rank), "right": (self.rank, after)}


class PhmMap(_Spec):
    """W = sum_i rule_i (x) weight_i, a rule of its own in every map (Compacter paper, Eq. 3-4)."""

    kind: Literal["phm"] = "phm"
    n: Size = 4

    def shapes(self, before: int, after: int) -> Shapes:
        return {"weight": (self.n, before // self.n, after // self.n), "rule": (self.n, self.n, self.n)}


class LphmMap(_Spec):
    """W = sum_i rule_i (x) (left_i right_i), one rule shared by every map of the adapter (Eq. 5-6)."""

    kind: Literal["lphm"] = "lphm"
    n: Size = 4
    rank: Size = 1

    def shapes(self, before: int, after: int) -> Shapes:
        return {"left": (self.n, before // self.n, self.rank), "right": (self.n, self.rank, after // self.n)}


MapSpec = Annotated[DenseMap | LowRankMap | PhmMap | LphmMap, Field(discriminator="kind")]


def _gate_shapes(gated: bool, *leading: int, hidden: int) -> Shapes:
    return {"gate.weight": (*leading, hidden), "gate.bias": leading} if gated else {}


class _PartSpec(_Spec):
    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for name in ("sites", "targets"):
            values = getattr(self, name, ())
            if len(set(values)) != len(values):
                raise ValueError(f"{name} {values} name one {name.removesuffix('s')} twice")
        return self

    def problems(self, config: BackboneConfig) -> list[str]:
        """Why the part cannot act on a backbone of this shape; empty if it can."""
        return []


class BottleneckSpec(_PartSpec):
    """y + up(act(down(x))) at the output y of a sub-layer, before the residual sum.

    `input` is what the adapter reads: `output` the sub-layer's raw output y, `normed` the norm of y + residual.
    `gated` scales the adapter's own term with UniPELT's gate on that input.
    """

    kind: Literal["bottleneck"] = "bottleneck"
    sites: tuple[Site, ...] = Field(min_length=1, max_length=2)
    size: Size
    activation: Activation
    input: Literal["output", "normed"] = "output"
    map: MapSpec
    gated: bool = False

    def problems(self, config: BackboneConfig) -> list[str]:
        n = getattr(self.map, "n", 1)
        problems = [
            f"bottleneck: n = {n} must divide the {what} {value}"
            for what, value in (("hidden size", config.hidden_size), ("bottleneck size", self.size))
            if value % n
        ]
        # Beyond it the factored form is wider than the dense one, and a small file would cost gigabytes to serve.
        if isinstance(self.map, LphmMap) and n * n * self.map.rank > config.hidden_size:
            problems.append(
                f"bottleneck: n * n * rank = {n * n * self.map.rank} must not exceed the hidden size "
                f"{config.hidden_size}"
            )
        return problems

    def shapes(self, config: BackboneConfig) -> Shapes:
        leading = (len(self.sites), config.num_layers)
        hidden = config.hidden_size
        shapes: Shapes = {}
        for side, before, after in (("down", hidden, self.size), ("up", self.size, hidden)):
            shapes |= {f"{side}.{name}": leading + shape for name, shape in self.map.shapes(before, after).items()}
            shapes[f"{side}.bias"] = (*leading, after)
        if isinstance(self.map, LphmMap):
            shapes["rule"] = (self.map.n,) * 3
        return shapes | _gate_shapes(self.gated, *leading, hidden=hidden)


class LoraSpec(_PartSpec):
    """y + scale * (x down) up on attention projections; a gate replaces the scale alpha / rank (Q-U5)."""

    kind: Literal["lora"] = "lora"
    targets: tuple[LoraTarget, ...] = Field(min_length=1, max_length=4)
    rank: Size
    alpha: float = Field(gt=0, allow_inf_nan=False)
    gated: bool = False

    def shapes(self, config: BackboneConfig) -> Shapes:
        leading = (len(self.targets), config.num_layers)
        hidden = config.hidden_size
        shapes = {"down": (*leading, hidden, self.rank), "up": (*leading, self.rank, hidden)}
        return shapes | _gate_shapes(self.gated, *leading, hidden=hidden)


class PrefixSpec(_PartSpec):
    """P extra keys and values in front of every self-attention; a gate scales both (UniPELT)."""

    kind: Literal["prefix"] = "prefix"
    length: Annotated[int, Field(ge=1, le=512)]
    gated: bool = False

    def shapes(self, config: BackboneConfig) -> Shapes:
        shape = (config.num_layers, self.length, config.hidden_size)
        shapes = {"keys": shape, "values": shape}
        return shapes | _gate_shapes(self.gated, config.num_layers, hidden=config.hidden_size)


class BiasSpec(_PartSpec):
    """Biases that replace the backbone's at the named sites (BitFit)."""

    kind: Literal["bias"] = "bias"
    sites: tuple[BiasSite, ...] = Field(min_length=1, max_length=7)

    def shapes(self, config: BackboneConfig) -> Shapes:
        return {site: self._shape(site, config) for site in self.sites}

    @staticmethod
    def _shape(site: BiasSite, config: BackboneConfig) -> Shape:
        if site == "pooler":
            return (config.hidden_size,)
        return (config.num_layers, config.intermediate_size if site == "intermediate" else config.hidden_size)


class NormSpec(_PartSpec):
    """LayerNorm weights and/or biases that replace the backbone's, the embedding norm first (Q-C2)."""

    kind: Literal["norm"] = "norm"
    weight: bool = True
    bias: bool = True

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.weight or self.bias):
            raise ValueError("a norm part replaces the weight, the bias or both")
        return self

    def shapes(self, config: BackboneConfig) -> Shapes:
        shape = (config.num_norms, config.hidden_size)
        return {name: shape for name in ("weight", "bias") if getattr(self, name)}


class HeadSpec(_PartSpec):
    """The task's own output layer over one vector a row.

    `pooling` picks that vector: `pooler` the backbone's tanh pooler on the first token, `first` the first token,
    `mean` the mean over tokens. `hidden` puts a dense tanh layer of the adapter's own in front, as RoBERTa's head has.
    """

    kind: Literal["head"] = "head"
    pooling: Literal["pooler", "first", "mean"] = "pooler"
    hidden: bool = False
    outputs: Size

    def shapes(self, config: BackboneConfig) -> Shapes:
        hidden = config.hidden_size
        dense: Shapes = {"dense.weight": (hidden, hidden), "dense.bias": (hidden,)} if self.hidden else {}
        return dense | {"weight": (hidden, self.outputs), "bias": (self.outputs,)}


PartSpec = Annotated[
    BottleneckSpec | LoraSpec | PrefixSpec | BiasSpec | NormSpec | HeadSpec, Field(discriminator="kind")
]
Parts = tuple[PartSpec, ...]


def tensor_shapes(parts: Parts, config: BackboneConfig) -> Shapes:
    """Every tensor of an adapter, named `part.tensor`: neither more nor fewer are accepted."""
    return {f"{part.kind}.{name}": shape for part in parts for name, shape in part.shapes(config).items()}


def pooler_users(parts: Parts) -> list[str]:
    """The kinds of the parts that need a backbone with a pooler."""
    return [
        part.kind
        for part in parts
        if (isinstance(part, HeadSpec) and part.pooling == "pooler")
        or (isinstance(part, BiasSpec) and "pooler" in part.sites)
    ]


def count_parameters(parts: Parts, config: BackboneConfig, *, head: bool = False) -> int:
    """Elements that serving needs; the papers count without the task head."""
    counted = tuple(part for part in parts if head or part.kind != "head")
    total = 0
    for shape in tensor_shapes(counted, config).values():
        elements = 1
        for size in shape:
            elements *= size
        total += elements
    return total
