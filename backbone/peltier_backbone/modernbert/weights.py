"""Builds a frozen ModernBERT or EuroBERT from a checkpoint's tensors, and lists the model's weights by name."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from peltier_backbone.attention.rotary import Rotary
from peltier_backbone.checkpoint.eurobert_config import EuroBertConfig
from peltier_backbone.checkpoint.modernbert_config import ModernBertConfig
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.errors import BackboneError
from peltier_backbone.linear.linear import Linear, LinearKernel, SharedHeads
from peltier_backbone.linear.norm import LayerNorm, RMSNorm
from peltier_backbone.linear.table import PlainTable, TableKernel
from peltier_backbone.modernbert.modernbert import Layer, ModernBert, RotaryAttention
from peltier_backbone.t5.sublayers import FeedForward

# The heads of the pretraining tasks: published checkpoints have them, the encoders do not.
_PRETRAINING: Mapping[str, tuple[str, ...]] = {"modernbert": ("head.", "decoder."), "eurobert": ("lm_head.",)}


def canonical_modernbert(tensors: dict[str, Tensor], config: ModernBertConfig, directory: Path) -> dict[str, Tensor]:
    """The tensors by their names in `ModernBertModel` or `EuroBertModel`, without the pretraining head."""
    kept = {}
    for name, tensor in tensors.items():
        short = name.removeprefix("model.")
        if short in kept:
            raise BackboneError(f"{directory}: tensor {name!r} is there twice")
        if not name.startswith(_PRETRAINING[config.family]):
            kept[short] = tensor
    return kept


def build_modernbert(
    config: ModernBertConfig, weights: Weights, kernel: LinearKernel, table: TableKernel = PlainTable
) -> ModernBert:
    """Build the encoder from canonical `weights`, and consume all of them."""
    tokens = weights.take("embeddings.tok_embeddings.weight", config.vocab_size, config.hidden_size)
    rotary = partial(
        Rotary.create, num_positions=config.max_positions, head_size=config.head_size, device=tokens.device
    )
    model = ModernBert(
        config=config,
        tokens=table(tokens),
        norm=_norm(weights, "embeddings.norm", config),
        layers=[_layer(weights, index, config, kernel) for index in range(config.num_layers)],
        final_norm=_norm(weights, "final_norm", config),
        global_rotary=rotary(config.global_theta, yarn=config.global_yarn),
        local_rotary=rotary(config.local_theta),
        rounded=kernel.coarse,
    )
    weights.finish("modernbert encoder")
    return model


def build_eurobert(config: EuroBertConfig, weights: Weights, kernel: LinearKernel, table: TableKernel) -> ModernBert:
    """Build the encoder from canonical `weights`, and consume all of them."""
    tokens = weights.take("embed_tokens.weight", config.vocab_size, config.hidden_size)
    positions, size = config.max_positions, config.head_size
    rotary = Rotary.create(config.global_theta, positions, size, tokens.device, config.slowdown)
    model = ModernBert(
        config=config,
        tokens=table(tokens),
        norm=None,
        layers=[_eurobert_layer(weights, index, config, kernel) for index in range(config.num_layers)],
        final_norm=_rms_norm(weights, "norm", config),
        global_rotary=rotary,
        local_rotary=rotary,
        rounded=kernel.coarse,
    )
    weights.finish("eurobert encoder")
    return model


def modernbert_weights(model: ModernBert) -> Iterator[tuple[str, Tensor]]:
    """Every weight in memory with the name under which it is hashed."""
    yield ("tokens", model.tokens.weight())
    for index, norm in enumerate(model.norms()):
        yield (f"norm.{index}", norm.weight)
    for index, layer in enumerate(model.layers):
        for name, linear in _maps(layer):
            yield (f"{index}.{name}", linear.weights()[0])


def _maps(layer: Layer) -> Iterator[tuple[str, Linear]]:
    attention, feed_forward = layer.attention, layer.feed_forward
    yield from (("query_key_value", attention.query_key_value), ("attention_output", attention.output))
    yield from (("intermediate", feed_forward.intermediate), ("output", feed_forward.output))


def _layer(weights: Weights, index: int, config: ModernBertConfig, kernel: LinearKernel) -> Layer:
    name, hidden, inner = f"layers.{index}", config.hidden_size, config.intermediate_size
    attention = RotaryAttention(
        number=index,
        norm=_norm(weights, f"{name}.attn_norm", config) if index else None,
        query_key_value=kernel(weights.take(f"{name}.attn.Wqkv.weight", 3 * hidden, hidden)),
        output=kernel(weights.take(f"{name}.attn.Wo.weight", hidden, hidden)),
        local=config.is_local[index],
    )
    feed_forward = FeedForward(
        block=index,
        norm_index=2 * index + 1,
        norm=_norm(weights, f"{name}.mlp_norm", config),
        intermediate=kernel(weights.take(f"{name}.mlp.Wi.weight", 2 * inner, hidden)),
        output=kernel(weights.take(f"{name}.mlp.Wo.weight", hidden, inner)),
        activation="gelu",
        gated=True,
    )
    return Layer(attention, feed_forward)


def _norm(weights: Weights, name: str, config: ModernBertConfig) -> LayerNorm:
    return LayerNorm(weights.take(f"{name}.weight", config.hidden_size), None, config.norm_eps)


def _eurobert_layer(weights: Weights, index: int, config: EuroBertConfig, kernel: LinearKernel) -> Layer:
    name, hidden, inner = f"layers.{index}", config.hidden_size, config.intermediate_size
    attention = RotaryAttention(
        number=index,
        norm=_rms_norm(weights, f"{name}.input_layernorm", config),
        query_key_value=_query_key_value(weights, f"{name}.self_attn", config, kernel),
        output=kernel(weights.take(f"{name}.self_attn.o_proj.weight", hidden, hidden)),
        local=False,
    )
    halves = [weights.take(f"{name}.mlp.{half}_proj.weight", inner, hidden) for half in ("gate", "up")]
    feed_forward = FeedForward(
        block=index,
        norm_index=2 * index + 1,
        norm=_rms_norm(weights, f"{name}.post_attention_layernorm", config),
        intermediate=kernel(torch.cat(halves)),
        output=kernel(weights.take(f"{name}.mlp.down_proj.weight", hidden, inner)),
        activation="silu",
        gated=True,
    )
    return Layer(attention, feed_forward)


def _query_key_value(weights: Weights, name: str, config: EuroBertConfig, kernel: LinearKernel) -> Linear:
    """One map [3 * hidden, hidden]. Each head has its own keys and values after it, so an adapter may change those of
    one head."""
    hidden, shared = config.hidden_size, config.num_key_heads * config.head_size
    sizes = (("q", hidden), ("k", shared), ("v", shared))
    own = kernel(torch.cat([weights.take(f"{name}.{part}_proj.weight", size, hidden) for part, size in sizes]))
    same = config.num_key_heads == config.num_heads
    return own if same else SharedHeads(own, config.num_heads, config.num_key_heads)


def _rms_norm(weights: Weights, name: str, config: EuroBertConfig) -> RMSNorm:
    return RMSNorm(weights.take(f"{name}.weight", config.hidden_size), config.norm_eps)
