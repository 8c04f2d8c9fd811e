"""Builds a frozen BERT or one of its relatives from a checkpoint's tensors, and lists the model's weights by name."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from peltier_backbone.attention.relative import create_bias
from peltier_backbone.attention.rotary import Rotary
from peltier_backbone.bert.bert import Bert, Embeddings
from peltier_backbone.bert.convolution import Convolution
from peltier_backbone.bert.layer import Layer
from peltier_backbone.bert.positions import DisentangledPositions, RelativePositions, distance_rows
from peltier_backbone.checkpoint.bert_config import MAX_DISTANCE, NUM_BUCKETS, BertConfig
from peltier_backbone.checkpoint.bert_family import BERT_FAMILIES, MapName
from peltier_backbone.checkpoint.deberta_config import DebertaConfig
from peltier_backbone.checkpoint.rotary_bert_config import RotaryBertConfig
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.errors import BackboneError
from peltier_backbone.linear.linear import Linear, LinearKernel
from peltier_backbone.linear.norm import LayerNorm
from peltier_backbone.linear.table import PlainTable, TableKernel

_FUSED = ("query", "key", "value")


def canonical_bert(tensors: dict[str, Tensor], config: BertConfig, directory: Path) -> dict[str, Tensor]:
    """The tensors by their names in `BertModel`: no family prefix, pretraining heads or constant position ids."""
    kept, family = {}, BERT_FAMILIES[config.family]
    unread = ["embeddings.position_ids", "inv_freq"]
    if isinstance(config, DebertaConfig) and not config.places_tokens:
        unread.append("embeddings.position_embeddings.weight")  # of pretraining
    for name, tensor in tensors.items():
        if name.startswith(family.pretraining) or name.endswith(tuple(unread)):
            continue
        short = family.bert_name(name)
        short = short.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        for own, part in _split(short, tensor):
            if own in kept:
                raise BackboneError(f"{directory}: tensor {name!r} is there twice")
            kept[own] = part
    return kept


def _split(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The parts of a tensor whose module's name joins theirs by "+", by their names; or the tensor itself."""
    module, _, kind = name.rpartition(".")
    path, _, joined = module.rpartition(".")
    parts = joined.split("+")
    if len(parts) == 1:
        yield name, tensor
        return
    for part, own in zip(parts, tensor.tensor_split(len(parts)), strict=True):
        yield f"{path}.{part}.{kind}", own


def build_bert(config: BertConfig, weights: Weights, kernel: LinearKernel, table: TableKernel = PlainTable) -> Bert:
    """Build the encoder from canonical `weights`, and consume all of them."""
    hidden, scored = config.hidden_size, isinstance(config, DebertaConfig)
    embeddings = _embeddings(weights, config, kernel, table)
    layers = [_layer(weights, f"encoder.layer.{i}", config, kernel) for i in range(config.num_layers)]
    # Masked-language-model checkpoints of RoBERTa have no pooler.
    has_pooler = "pooler.dense.weight" in weights and not scored  # DeBERTa's belongs to a classifier
    pooler = kernel(*_linear(weights, "pooler.dense", hidden, hidden)) if has_pooler else None
    positions = _positions(weights, config, layers, kernel)
    convolution = _convolution(weights, config, kernel)
    weights.finish(f"{config.family} encoder")
    rotary = None
    if isinstance(config, RotaryBertConfig):
        device = layers[0].attention_norm.weight.device
        rotary = Rotary.create(config.theta, config.max_positions, config.head_size, device, config.slowdown)
    return Bert(config, embeddings, layers, pooler, kernel.coarse, positions, rotary, convolution)


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
    norms = {f"norm.{index}": norm for index, norm in enumerate(model.norms())}
    if model.convolution is not None:
        norms["convolution.norm"] = model.convolution.norm
    for name, norm in norms.items():
        assert norm.bias is not None, "all norms of BERT have one"
        yield from ((f"{name}.weight", norm.weight), (f"{name}.bias", norm.bias))
    if embeddings.widening is not None:
        yield ("widening.weight", embeddings.widening.weights()[0])
    for name, linear in _named_maps(model):
        yield from ((f"{name}.weight", linear.weights()[0]), (f"{name}.bias", linear.bias))


def _named_maps(model: Bert) -> Iterator[tuple[str, Linear]]:
    """Its maps with biases."""
    if model.embeddings.projection is not None:
        yield "projection", model.embeddings.projection
    for index, layer in enumerate(model.layers):
        for part in ("query_key_value", "attention_output", "intermediate", "output"):
            yield f"{index}.{part}", getattr(layer, part)
    if model.convolution is not None:
        yield "convolution", model.convolution.map
    if model.pooler is not None:
        yield "pooler", model.pooler


def _embeddings(weights: Weights, config: BertConfig, kernel: LinearKernel, table: TableKernel) -> Embeddings:
    hidden, width, scored = config.hidden_size, config.embedding_size, isinstance(config, DebertaConfig)
    placed = config.places_tokens if isinstance(config, DebertaConfig) else not config.kind.rotary
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


def _convolution(weights: Weights, config: BertConfig, kernel: LinearKernel) -> Convolution | None:
    """The checkpoint has a weight [out, in, size]."""
    if not isinstance(config, DebertaConfig) or not config.convolution_size:
        return None
    hidden, size = config.hidden_size, config.convolution_size
    weight = weights.take("encoder.conv.conv.weight", hidden, hidden, size).transpose(1, 2).flatten(1)
    own = kernel(weight, weights.take("encoder.conv.conv.bias", hidden))
    return Convolution(
        own, size, config.convolution_activation, _norm(weights, "encoder.conv.LayerNorm", hidden, config)
    )


def _bias(weights: Weights, config: BertConfig) -> RelativePositions:
    table = weights.take("encoder.relative_attention_bias.weight", NUM_BUCKETS, config.num_heads)
    bias = create_bias(table, config.num_heads, MAX_DISTANCE, bidirectional=True)
    return RelativePositions(bias, config.head_size**-0.5)


def _types(weights: Weights, config: BertConfig) -> Tensor | None:
    if config.num_token_types == 0:
        return None
    return weights.take("embeddings.token_type_embeddings.weight", config.num_token_types, config.embedding_size)


def _layer(weights: Weights, name: str, config: BertConfig, kernel: LinearKernel) -> Layer:
    hidden, inner, kind = config.hidden_size, config.intermediate_size, config.kind

    def build(site: MapName, modules: Sequence[str], out: int, width: int) -> Linear:
        """One map of the modules' outputs, back to back."""
        biased = site not in kind.unbiased
        parts = [_linear(weights, f"{name}.{module}", out, width, biased=biased) for module in modules]
        return kernel(*(own[0] if len(own) == 1 else torch.cat(own) for own in zip(*parts, strict=True)))

    expanded = ("intermediate.gate", "intermediate.factor") if kind.gated else ("intermediate.dense",)
    return Layer(
        query_key_value=build("query_key_value", [f"attention.self.{part}" for part in _FUSED], hidden, hidden),
        attention_output=build("attention_output", ["attention.output.dense"], hidden, hidden),
        attention_norm=_norm(weights, f"{name}.attention.output.LayerNorm", hidden, config),
        intermediate=build("intermediate", expanded, inner, hidden),
        output=build("output", ["output.dense"], hidden, inner),
        output_norm=_norm(weights, f"{name}.output.LayerNorm", hidden, config),
        activation="swish" if kind.swish else "gelu",
        gated=kind.gated,
    )


def _linear(weights: Weights, name: str, out: int, width: int, *, biased: bool = True) -> tuple[Tensor, Tensor]:
    """A map's weight and bias, which is zero if it has none: so adapters find a bias at every map."""
    weight = weights.take(f"{name}.weight", out, width)
    return weight, weights.take(f"{name}.bias", out) if biased else weight.new_zeros(out)


def _norm(weights: Weights, name: str, width: int, config: BertConfig) -> LayerNorm:
    return LayerNorm(weights.take(f"{name}.weight", width), weights.take(f"{name}.bias", width), config.norm_eps)


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
