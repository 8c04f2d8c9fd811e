"""The queries and keys of distances of a DeBERTa, from a checkpoint's tensors."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from peltier_backbone.bert.disentangled_positions import DisentangledPositions, distance_rows
from peltier_backbone.bert.layer import Layer
from peltier_backbone.checkpoint.deberta_config import DebertaConfig
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.linear.linear import LinearKernel
from peltier_backbone.linear.norm import LayerNorm


def build_distances(
    config: DebertaConfig, weights: Weights, layers: Sequence[Layer], kernel: LinearKernel
) -> DisentangledPositions:
    """Adapters do not change them: they are computed once, by the frozen maps."""
    hidden = config.hidden_size
    table = weights.take("encoder.rel_embeddings.weight", 2 * config.span, hidden)
    if config.norms_distances:
        weight, bias = (weights.take(f"encoder.LayerNorm.{name}", hidden) for name in ("weight", "bias"))
        table = LayerNorm(weight, bias, config.norm_eps)(table)
    queries, keys = [], []
    for query, key in _maps(config, weights, layers, kernel, table):
        queries += [] if query is None else [_columns(query, config)]
        # Columns of keys go by key - query.
        keys += [] if key is None else [_columns(key, config).flip(-1)]
    return DisentangledPositions(
        torch.stack(queries) if queries else None, torch.stack(keys) if keys else None, config.score_scale
    )


def _maps(
    config: DebertaConfig, weights: Weights, layers: Sequence[Layer], kernel: LinearKernel, table: Tensor
) -> Iterator[tuple[Tensor | None, Tensor | None]]:
    """Queries and keys of the rows of `table` in each layer, each [rows, hidden], of the kinds that the model has."""
    hidden = config.hidden_size
    for number, layer in enumerate(layers):
        if config.shares_maps:
            query, key, _ = layer.query_key_value(table).chunk(3, -1)
            yield (query if "p2c" in config.kinds else None), (key if "c2p" in config.kinds else None)
            continue
        found: dict[str, Tensor] = {}
        for kind, name in (("p2c", "pos_query_proj"), ("c2p", "pos_key_proj")):
            if kind in config.kinds:
                full = f"encoder.layer.{number}.attention.self.{name}"
                weight, bias = weights.take(f"{full}.weight", hidden, hidden), weights.take(f"{full}.bias", hidden)
                found[kind] = kernel(weight, bias)(table)
        yield found.get("p2c"), found.get("c2p")


def _columns(rows: Tensor, config: DebertaConfig) -> Tensor:
    """A column for each distance between tokens of the longest row, [heads, head size, distances] in float32."""
    numbers = distance_rows(config.max_tokens, config.num_buckets, config.reach).to(rows.device)
    chosen = rows.float().index_select(0, numbers)
    return chosen.view(len(chosen), config.num_heads, -1).permute(1, 2, 0).contiguous()
