"""The cost of adapters relative to their backbone: multiply-adds, and elements on the device. Imports no torch.

A multiply-add is one term of a matrix product. Sums, activations, softmax and norms are not counted, neither for the
adapter nor for the backbone. Parts are counted as they are served (`served_parts`): PHM maps are dense, and the rule of
a Compacter is folded in.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Self

from peltier_backbone.checkpoint.config import BackboneConfig

from peltier_adapters.spec.maps import FoldedLphmMap, ServedMapSpec
from peltier_adapters.spec.parts import (
    BottleneckSpec,
    CentralGateSpec,
    HeadSpec,
    LoraSpec,
    LoraStack,
    Parts,
    PartSpec,
    PrefixSpec,
    served_parts,
)


@dataclass(frozen=True)
class BackboneCost:
    """Multiply-adds of the frozen model. `blocks`: for each block, those of one token with its weights, which is also
    the number of these weights; a decoder's block includes its cross-attention. `pair`: those of one query with one key
    and its value, in one attention. `output`: those of T5's output layer for one token, else 0."""

    blocks: tuple[int, ...]
    pair: int
    output: int

    @classmethod
    def of(cls, config: BackboneConfig) -> Self:
        """The cost of a backbone of this shape."""
        attention = 4 * config.hidden_size * config.attention_size
        forward = config.hidden_size * (config.expansion_size + config.intermediate_size)
        encoder, decoder = (attention + forward,), (2 * attention + forward,)
        blocks = encoder * config.num_layers + decoder * (config.num_blocks - config.num_layers)
        output = config.vocab_size * config.hidden_size if config.generates else 0
        return cls(blocks, 2 * config.attention_size, output)


@dataclass(frozen=True)
class PartCost:
    """The cost of one part: multiply-adds of one token in each block, and of one row, or of one token for a head of
    tokens, after the last block, and elements on the device. For a prefix, the token attends to all of its keys."""

    kind: str
    blocks: tuple[int, ...]
    row: int
    elements: int


@dataclass(frozen=True)
class AdapterCost:
    """The cost that an adapter adds to its backbone."""

    backbone: BackboneCost
    parts: tuple[PartCost, ...]

    @classmethod
    def of(cls, parts: Parts, config: BackboneConfig) -> Self:
        """The cost of an adapter with these parts of an artifact."""
        return cls._of(parts, config)

    @classmethod
    @lru_cache(maxsize=1024)
    def _of(cls, parts: Parts, config: BackboneConfig) -> Self:
        served = served_parts(parts)
        return cls(BackboneCost.of(config), tuple(_part_cost(part, served, config) for part in served))

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """Multiply-adds of one token in each block, for all parts together."""
        return tuple(map(sum, zip(*(part.blocks for part in self.parts), strict=True)))

    @cached_property
    def elements(self) -> int:
        """Elements on the device."""
        return sum(part.elements for part in self.parts)

    @cached_property
    def row(self) -> int:
        """Multiply-adds of a row's head."""
        return sum(part.row for part in self.parts)

    def problems(self, max_ratio: float, setting: str) -> list[str]:
        """Why the adapter exceeds `max_ratio`, naming the most expensive part; empty if it does not. `setting` is the
        name of the bound for the message."""
        return [*self._compute_problems(max_ratio, setting), *self._elements_problems(max_ratio, setting)]

    def _compute_problems(self, max_ratio: float, setting: str) -> Iterator[str]:
        block = max(range(len(self.blocks)), key=lambda number: self.blocks[number] / self.backbone.blocks[number])
        added, base = self.blocks[block], self.backbone.blocks[block]
        if added > max_ratio * base:
            part = max(self.parts, key=lambda part: part.blocks[block])
            yield (
                f"part {part.kind!r} takes {part.blocks[block]:,} multiply-adds a token of the {added:,} that the "
                f"adapter adds to block {block}, {added / base:.2f} times the block's own {base:,}; at most "
                f"{max_ratio:g} times is allowed ({setting})"
            )

    def _elements_problems(self, max_ratio: float, setting: str) -> Iterator[str]:
        base = sum(self.backbone.blocks)
        if self.elements > max_ratio * base:
            part = max(self.parts, key=lambda part: part.elements)
            yield (
                f"part {part.kind!r} takes {part.elements:,} elements of the {self.elements:,} that the adapter takes "
                f"on the device, {self.elements / base:.2f} times the {base:,} weights in the backbone's blocks; at "
                f"most {max_ratio:g} times is allowed ({setting})"
            )


def _part_cost(part: PartSpec, parts: Parts, config: BackboneConfig) -> PartCost:
    elements = sum(prod(shape) for shape in part.shapes(config).values())
    return PartCost(part.kind, _block_cost(part, parts, config), _row_cost(part, config), elements)


def _block_cost(part: PartSpec, parts: Parts, config: BackboneConfig) -> tuple[int, ...]:
    match part:
        case BottleneckSpec():
            return _from_block(part.skip, (_bottleneck(part, config),) * config.num_blocks, config)
        case LoraSpec():
            stacks = [_lora_stack(part, stack, config) for stack in part.stacks(config)]
            return _from_block(part.skip, [sum(costs) for costs in zip(*stacks, strict=True)], config)
        case PrefixSpec():
            gate = config.hidden_size if part.gated else 0
            each = part.length * BackboneCost.of(config).pair + gate
            return _from_block(part.skip, _attentions(each, config), config)
        case CentralGateSpec():
            each = _num_shares(parts) * 2 * config.hidden_size
            return _from_block(part.skip, _attentions(each, config), config)
    return (0,) * config.num_blocks


def _from_block(skip: int, blocks: Sequence[int], config: BackboneConfig) -> tuple[int, ...]:
    """The cost of each block, 0 in the first `skip` blocks of each stack."""
    return tuple(cost if config.place_block(block) >= skip else 0 for block, cost in enumerate(blocks))


def _attentions(each: int, config: BackboneConfig) -> tuple[int, ...]:
    """`each` for every attention of a block; a decoder's blocks have two."""
    return (each,) * config.num_layers + (2 * each,) * (config.num_blocks - config.num_layers)


def _bottleneck(spec: BottleneckSpec, config: BackboneConfig) -> int:
    hidden, size = config.hidden_size, spec.size
    gate = hidden if spec.gated else 0
    return len(spec.sites) * (_map(spec.map, hidden, size) + _map(spec.map, size, hidden) + gate)


def _map(spec: ServedMapSpec, before: int, after: int) -> int:
    shapes = spec.shapes(before, after)
    if not isinstance(spec, FoldedLphmMap):
        return sum(map(prod, shapes.values()))
    # The factor on the wider side meets each of the n blocks.
    left, right = prod(shapes["left"]), prod(shapes["right"])
    return spec.n * left + right if spec.contracts(before, after) else left + spec.n * right


def _lora_stack(spec: LoraSpec, stack: LoraStack, config: BackboneConfig) -> tuple[int, ...]:
    gate = stack.before if spec.gated else 0
    each = len(stack.maps) * (spec.rank * (stack.before + stack.after) + gate)
    return (each,) * config.num_blocks if stack.in_blocks else _attentions(each, config)


def _num_shares(parts: Sequence[PartSpec]) -> int:
    """How often an attention evaluates the central gate: for the prefix, and for each LoRA target."""
    return sum(len(part.targets) if isinstance(part, LoraSpec) else isinstance(part, PrefixSpec) for part in parts)


def _row_cost(part: PartSpec, config: BackboneConfig) -> int:
    if not isinstance(part, HeadSpec):
        return 0
    vocabulary = 0 if part.terms is None else part.outputs * config.vocab_size
    return part.outputs * config.hidden_size + (config.hidden_size**2 if part.hidden else 0) + vocabulary
