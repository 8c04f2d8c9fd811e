"""Makes one part of the prefixes of all attentions, or of a soft prompt."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.head import take_dense
from peltier_adapters.importers.shared.imported import ImportedGate, ImportedPart, stacked, stacked_gates
from peltier_adapters.spec.parts import PrefixSpec, PromptSpec


@dataclass(frozen=True)
class KeysValues:
    """Keys and values [P, width] of one attention, and the gate that scales both."""

    keys: Tensor
    values: Tensor
    gate: ImportedGate | None = None


def prefix_width(config: BackboneConfig) -> int:
    """Values of one position of an encoder's prefix: a key and a value for each layer."""
    return 2 * config.num_attentions * config.attention_size


def evaluate_prefix(table: Tensor, checkpoint: Checkpoint, mlp: str, config: BackboneConfig) -> Tensor:
    """The prefix [P, 2 * L * width] of a table [P, embedding] after the layers `mlp`.0 and `mlp`.2 with a tanh between
    them, which serving does not need (docs/methods/prefix.md)."""
    inner = take_dense(checkpoint, f"{mlp}.0", None, table.shape[1])
    outer = take_dense(checkpoint, f"{mlp}.2", prefix_width(config), len(inner.weight))
    return torch.tanh(table @ inner.weight.T + inner.bias) @ outer.weight.T + outer.bias


def unfold_prefix(flat: Tensor, config: BackboneConfig) -> dict[int, KeysValues]:
    """Keys and values by attention of an encoder's [P, 2 * L * width]: layer i has rows 2i and 2i + 1."""
    tables = flat.view(len(flat), 2 * config.num_attentions, config.attention_size)
    return {i: KeysValues(tables[:, 2 * i], tables[:, 2 * i + 1]) for i in range(config.num_attentions)}


def create_prefix(
    prefixes: Mapping[int, KeysValues], config: BackboneConfig, *, shifts_positions: bool = False
) -> ImportedPart:
    """The part of `prefixes`, one for each attention. None may be missing, because a zero key has an effect."""
    if len(prefixes) != config.num_attentions:
        raise AdapterError(f"{len(prefixes)} attentions have prefixes; all {config.num_attentions} must have one")
    gates = {(index,): prefix.gate for index, prefix in prefixes.items() if prefix.gate is not None}
    if len(gates) not in (0, config.num_attentions):
        raise AdapterError(f"{len(gates)} of {len(prefixes)} prefixes are gated; all or none must be")
    length = len(prefixes[0].keys)
    leading, shape = (config.num_attentions,), (length, config.attention_size)
    spec = PrefixSpec(length=length, gated=bool(gates), shifts_positions=shifts_positions)
    tensors = {
        "keys": stacked({(index,): prefix.keys for index, prefix in prefixes.items()}, leading, shape),
        "values": stacked({(index,): prefix.values for index, prefix in prefixes.items()}, leading, shape),
    }
    return ImportedPart(spec, tensors | stacked_gates(gates, leading, config.hidden_size))


def create_prompt(table: Tensor, config: BackboneConfig) -> ImportedPart:
    """The part of `table` [P, hidden]; raises `AdapterError` if the backbone has no soft prompts."""
    spec = PromptSpec(length=len(table))
    problems = spec.problems(config)
    if problems:
        raise AdapterError(problems[0])
    return ImportedPart(spec, {"weight": table})
