"""Builds a frozen EuroBERT from a checkpoint's tensors."""

import torch

from peltier_backbone.attention.rotary import Rotary
from peltier_backbone.checkpoint.eurobert_config import EuroBertConfig
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.linear.linear import Linear, LinearKernel
from peltier_backbone.linear.norm import RMSNorm
from peltier_backbone.linear.shared_heads import SharedHeads
from peltier_backbone.linear.table import TableKernel
from peltier_backbone.modernbert.layer import Layer, RotaryAttention
from peltier_backbone.modernbert.modernbert import ModernBert
from peltier_backbone.t5.sublayers import FeedForward


def build_eurobert(config: EuroBertConfig, weights: Weights, kernel: LinearKernel, table: TableKernel) -> ModernBert:
    """Build the encoder from canonical `weights`, and consume all of them."""
    tokens = weights.take("embed_tokens.weight", config.vocab_size, config.hidden_size)
    positions, size = config.max_positions, config.head_size
    rotary = Rotary.create(config.global_theta, positions, size, tokens.device, config.slowdown)
    model = ModernBert(
        config=config,
        tokens=table(tokens),
        norm=None,
        layers=[_layer(weights, index, config, kernel) for index in range(config.num_layers)],
        final_norm=_norm(weights, "norm", config),
        global_rotary=rotary,
        local_rotary=rotary,
        rounded=kernel.coarse,
    )
    weights.finish("eurobert encoder")
    return model


def _layer(weights: Weights, index: int, config: EuroBertConfig, kernel: LinearKernel) -> Layer:
    name, hidden, inner = f"layers.{index}", config.hidden_size, config.intermediate_size
    attention = RotaryAttention(
        number=index,
        norm=_norm(weights, f"{name}.input_layernorm", config),
        query_key_value=_query_key_value(weights, f"{name}.self_attn", config, kernel),
        output=kernel(weights.take(f"{name}.self_attn.o_proj.weight", hidden, hidden)),
        local=False,
    )
    halves = [weights.take(f"{name}.mlp.{half}_proj.weight", inner, hidden) for half in ("gate", "up")]
    feed_forward = FeedForward(
        block=index,
        norm_index=2 * index + 1,
        norm=_norm(weights, f"{name}.post_attention_layernorm", config),
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


def _norm(weights: Weights, name: str, config: EuroBertConfig) -> RMSNorm:
    return RMSNorm(weights.take(f"{name}.weight", config.hidden_size), config.norm_eps)
