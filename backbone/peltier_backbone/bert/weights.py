"""Builds a frozen BERT or one of its relatives from a checkpoint's tensors, and lists the model's weights by name."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from peltier_backbone.attention.relative import create_bias
from peltier_backbone.bert.bert import Bert, Embeddings
from peltier_backbone.bert.disentangled_positions import DisentangledPositions
from peltier_backbone.bert.distances import build_distances
from peltier_backbone.bert.layer import Layer
from peltier_backbone.bert.relative_positions import RelativePositions
from peltier_backbone.checkpoint.bert_config import MAX_DISTANCE, NUM_BUCKETS, BertConfig
from peltier_backbone.checkpoint.bert_family import BERT_FAMILIES
from peltier_backbone.checkpoint.deberta_config import DebertaConfig
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.errors import BackboneError
from peltier_backbone.linear.linear import Linear, LinearKernel
from peltier_backbone.linear.norm import LayerNorm
from peltier_backbone.linear.table import PlainTable, TableKernel


def canonical_bert(tensors: dict[str, Tensor], config: BertConfig, directory: Path) -> dict[str, Tensor]:
    """The tensors by their names in `BertModel`: no family prefix, pretraining heads or constant position ids."""
    kept, family = {}, BERT_FAMILIES[config.family]
    unread = ["embeddings.position_ids"]
    if isinstance(config, DebertaConfig) and not config.places_tokens:
        unread.append("embeddings.position_embeddings.weight")  # of pretraining
    for name, tensor in tensors.items():
        if name.startswith(family.pretraining) or name.endswith(tuple(unread)):
            continue
        short = family.bert_name(name)
        short = short.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if short in kept:
            raise BackboneError(f"{directory}: tensor {name!r} is there twice")
        kept[short] = tensor
    return kept


def build_bert(config: BertConfig, weights: Weights, kernel: LinearKernel, table: TableKernel = PlainTable) -> Bert:
    """Build the encoder from canonical `weights`, and consume all of them."""
    hidden, scored = config.hidden_size, isinstance(config, DebertaConfig)
    embeddings = _embeddings(weights, config, kernel, table)
    layers = [_layer(weights, f"encoder.layer.{i}", config, kernel) for i in range(config.num_layers)]
    # Masked-language-model checkpoints of RoBERTa have no pooler.
    has_pooler = "pooler.dense.weight" in weights and not scored  # DeBERTa's belongs to a classifier
    pooler = kernel(*_linear(weights, "pooler.dense", hidden, hidden)) if has_pooler else None
    positions = _positions(weights, config, layers, kernel)
    weights.finish(f"{config.family} encoder")
    return Bert(config, embeddings, layers, pooler, kernel.coarse, positions)


def bert_weights(model: Bert) -> Iterator[tuple[str, Tensor]]:
    """Every weight in memory with the name under which it is hashed."""
    embeddings = model.embeddings
    yield ("tokens", embeddings.tokens.weight())
    if embeddings.positions is not None:
        yield ("positions", embeddings.positions)
    if embeddings.types is not None:
        yield ("types", embeddings.types)
    if model.positions is not None:
        yield from model.positions.tables()
    for index, norm in enumerate(model.norms()):
        assert norm.bias is not None, "all norms of BERT have one"
        yield from ((f"norm.{index}.weight", norm.weight), (f"norm.{index}.bias", norm.bias))
    linears: dict[str, Linear] = {} if embeddings.projection is None else {"projection": embeddings.projection}
    for index, layer in enumerate(model.layers):
        for part in ("query_key_value", "attention_output", "intermediate", "output"):
            linears[f"{index}.{part}"] = getattr(layer, part)
    if model.pooler is not None:
        linears["pooler"] = model.pooler
    if embeddings.widening is not None:
        yield ("widening.weight", embeddings.widening.weights()[0])
    for name, linear in linears.items():
        yield from ((f"{name}.weight", linear.weights()[0]), (f"{name}.bias", linear.bias))


def _embeddings(weights: Weights, config: BertConfig, kernel: LinearKernel, table: TableKernel) -> Embeddings:
    hidden, width, scored = config.hidden_size, config.embedding_size, isinstance(config, DebertaConfig)
    placed = not isinstance(config, DebertaConfig) or config.places_tokens
    return Embeddings(
        tokens=table(weights.take("embeddings.word_embeddings.weight", config.vocab_size, width)),
        positions=weights.take("embeddings.position_embeddings.weight", config.max_positions, width)
        if placed
        else None,
        types=_types(weights, config),
        norm=_norm(weights, "embeddings.LayerNorm", hidden if scored else width, config),
        projection=kernel(*_linear(weights, "embeddings_project", hidden, width))
        if config.factored and not scored
        else None,
        widening=kernel(weights.take("embeddings.embed_proj.weight", hidden, width))
        if config.factored and scored
        else None,
    )


def _positions(
    weights: Weights, config: BertConfig, layers: Sequence[Layer], kernel: LinearKernel
) -> RelativePositions | DisentangledPositions | None:
    if isinstance(config, DebertaConfig):
        return build_distances(config, weights, layers, kernel)
    return _bias(weights, config) if config.relative else None


def _bias(weights: Weights, config: BertConfig) -> RelativePositions:
    table = weights.take("encoder.relative_attention_bias.weight", NUM_BUCKETS, config.num_heads)
    bias = create_bias(table, config.num_heads, MAX_DISTANCE, bidirectional=True)
    return RelativePositions(bias, config.head_size**-0.5)


def _types(weights: Weights, config: BertConfig) -> Tensor | None:
    if config.num_token_types == 0:
        return None
    return weights.take("embeddings.token_type_embeddings.weight", config.num_token_types, config.embedding_size)


def _layer(weights: Weights, name: str, config: BertConfig, kernel: LinearKernel) -> Layer:
    hidden, inner = config.hidden_size, config.intermediate_size
    parts = [_linear(weights, f"{name}.attention.self.{part}", hidden, hidden) for part in ("query", "key", "value")]
    return Layer(
        query_key_value=kernel(torch.cat([weight for weight, _ in parts]), torch.cat([bias for _, bias in parts])),
        attention_output=kernel(*_linear(weights, f"{name}.attention.output.dense", hidden, hidden)),
        attention_norm=_norm(weights, f"{name}.attention.output.LayerNorm", hidden, config),
        intermediate=kernel(*_linear(weights, f"{name}.intermediate.dense", inner, hidden)),
        output=kernel(*_linear(weights, f"{name}.output.dense", hidden, inner)),
        output_norm=_norm(weights, f"{name}.output.LayerNorm", hidden, config),
    )


def _linear(weights: Weights, name: str, out: int, width: int) -> tuple[Tensor, Tensor]:
    return weights.take(f"{name}.weight", out, width), weights.take(f"{name}.bias", out)


def _norm(weights: Weights, name: str, width: int, config: BertConfig) -> LayerNorm:
    return LayerNorm(weights.take(f"{name}.weight", width), weights.take(f"{name}.bias", width), config.norm_eps)
