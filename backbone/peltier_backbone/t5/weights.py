"""Builds a frozen T5 from a checkpoint's tensors, and lists the model's weights by name."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from peltier_backbone.attention.relative import RelativeBias, create_bias
from peltier_backbone.checkpoint.t5_config import T5Config
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.errors import BackboneError
from peltier_backbone.linear.linear import Linear, LinearKernel
from peltier_backbone.linear.norm import RMSNorm
from peltier_backbone.linear.table import PlainTable, TableKernel
from peltier_backbone.t5.stacks import Decoder, DecoderBlock, Encoder, EncoderBlock
from peltier_backbone.t5.sublayers import CrossAttention, FeedForward, SelfAttention
from peltier_backbone.t5.t5 import T5

_EMBEDDING, _HEAD = "shared.weight", "lm_head.weight"
_ALIASES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
# The first published checkpoints have a table that no T5 uses; transformers ignores it too.
_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def canonical_t5(tensors: dict[str, Tensor], config: T5Config, directory: Path) -> dict[str, Tensor]:
    """The tensors by their names in `T5ForConditionalGeneration`, each once, without the vocabulary's padding. An mT5
    or umT5 without an output layer of its own has the embedding's weights, as in transformers."""
    kept = {name: tensor for name, tensor in tensors.items() if name != _UNUSED}
    for alias in (*_ALIASES, _HEAD) if config.tied else _ALIASES:
        tensor = kept.pop(alias, None)
        if tensor is not None and not torch.equal(kept.setdefault(_EMBEDDING, tensor), tensor):
            raise BackboneError(
                f"{directory}: tensor {alias!r} differs from {_EMBEDDING!r}, which the configuration says it is"
            )
    if config.family in ("mt5", "umt5") and _EMBEDDING in kept:
        kept.setdefault(_HEAD, kept[_EMBEDDING])
    for name in (_EMBEDDING, _HEAD):
        if name in kept:
            kept[name] = kept[name][: config.vocab_size]
    return kept


def build_t5(config: T5Config, weights: Weights, kernel: LinearKernel, table: TableKernel = PlainTable) -> T5:
    """Build the model from canonical `weights`, and consume all of them."""
    embedding = weights.take(_EMBEDDING, config.vocab_size, config.hidden_size)
    builder = _Builder(config, weights, kernel)
    encoder, decoder = builder.encoder(), builder.decoder()
    # A packed kernel copies a tied embedding to its own layout, which is twice as fast; a plain table keeps its weight.
    lm_head = kernel(embedding if config.tied else weights.take(_HEAD, config.vocab_size, config.hidden_size))
    weights.finish(f"{config.family} model")
    return T5(config, table(embedding, lm_head if config.tied else None), encoder, decoder, lm_head)


def t5_weights(model: T5) -> Iterator[tuple[str, Tensor]]:
    """Every weight in memory with the name under which it is hashed."""
    yield from (("embedding", model.embedding.weight()), ("encoder.bias", model.encoder.bias.line))
    yield ("decoder.bias", model.decoder.bias.line)
    for index, norm in enumerate(model.norms()):
        yield (f"norm.{index}", norm.weight)
    for name, linear in _linears(model):
        yield (name, linear.weights()[0])


def _linears(model: T5) -> Iterator[tuple[str, Linear]]:
    yield ("lm_head", model.lm_head)
    blocks = [(one.attention, one.feed_forward) for one in model.encoder.blocks]
    blocks += [(one.own, one.feed_forward) for one in model.decoder.blocks]
    for index, (attention, feed_forward) in enumerate(blocks):
        yield from ((f"{index}.qkv", attention.query_key_value), (f"{index}.attention_output", attention.output))
        yield from ((f"{index}.intermediate", feed_forward.intermediate), (f"{index}.output", feed_forward.output))
    for index, block in enumerate(model.decoder.blocks):
        for part in ("query", "key_value", "output"):
            yield (f"cross.{index}.{part}", getattr(block.cross, part))


class _Builder:
    """Builds the blocks of both stacks with their numbers in the whole model (see `T5Config`)."""

    def __init__(self, config: T5Config, weights: Weights, kernel: LinearKernel) -> None:
        self._config, self._weights, self._kernel = config, weights, kernel

    def encoder(self) -> Encoder:
        blocks = [
            EncoderBlock(
                self._own(f"encoder.block.{i}.layer.0", i, 2 * i),
                self._feed_forward(f"encoder.block.{i}.layer.1", i, 2 * i + 1),
            )
            for i in range(self._config.num_layers)
        ]
        return Encoder(self._config.num_heads, self._bias("encoder"), blocks, self._norm("encoder.final_layer_norm"))

    def decoder(self) -> Decoder:
        config, blocks = self._config, []
        for i in range(config.num_decoder_layers):
            block, norm = config.num_layers + i, 2 * config.num_layers + 1 + 3 * i
            blocks.append(
                DecoderBlock(
                    self._own(f"decoder.block.{i}.layer.0", block, norm),
                    self._cross(f"decoder.block.{i}.layer.1", block + config.num_decoder_layers, norm + 1),
                    self._feed_forward(f"decoder.block.{i}.layer.2", block, norm + 2),
                )
            )
        final = self._norm("decoder.final_layer_norm")
        return Decoder(config.num_heads, self._bias("decoder"), blocks, final, config.num_norms - 1)

    def _own(self, name: str, block: int, norm_index: int) -> SelfAttention:
        hidden, size = self._config.hidden_size, self._config.attention_size
        return SelfAttention(
            block=block,
            attention=block,
            norm_index=norm_index,
            norm=self._norm(f"{name}.layer_norm"),
            query_key_value=self._linear([f"{name}.SelfAttention.{part}" for part in "qkv"], size, hidden),
            output=self._linear([f"{name}.SelfAttention.o"], hidden, size),
        )

    def _cross(self, name: str, attention: int, norm_index: int) -> CrossAttention:
        hidden, size = self._config.hidden_size, self._config.attention_size
        return CrossAttention(
            attention=attention,
            norm_index=norm_index,
            norm=self._norm(f"{name}.layer_norm"),
            query=self._linear([f"{name}.EncDecAttention.q"], size, hidden),
            key_value=self._linear([f"{name}.EncDecAttention.{part}" for part in "kv"], size, hidden),
            output=self._linear([f"{name}.EncDecAttention.o"], hidden, size),
        )

    def _feed_forward(self, name: str, block: int, norm_index: int) -> FeedForward:
        config, dense = self._config, f"{name}.DenseReluDense"
        expansion = [f"{dense}.wi_0", f"{dense}.wi_1"] if config.gated else [f"{dense}.wi"]
        return FeedForward(
            block=block,
            norm_index=norm_index,
            norm=self._norm(f"{name}.layer_norm"),
            intermediate=self._linear(expansion, config.intermediate_size, config.hidden_size),
            output=self._linear([f"{dense}.wo"], config.hidden_size, config.intermediate_size),
            activation=config.activation,
            gated=config.gated,
        )

    def _linear(self, names: list[str], out: int, width: int) -> Linear:
        """One map of the maps `names`, each [out, width]."""
        parts = [self._weights.take(f"{name}.weight", out, width) for name in names]
        return self._kernel(parts[0] if len(parts) == 1 else torch.cat(parts))

    def _norm(self, name: str) -> RMSNorm:
        return RMSNorm(self._weights.take(f"{name}.weight", self._config.hidden_size), self._config.norm_eps)

    def _bias(self, stack: str) -> RelativeBias:
        """Of the first block, for all, or of all blocks side by side."""
        config, names = self._config, [f"{stack}.block.0"]
        if config.block_biases:
            num_blocks = config.num_layers if stack == "encoder" else config.num_decoder_layers
            names = [f"{stack}.block.{i}" for i in range(num_blocks)]
        tables = [
            self._weights.take(
                f"{name}.layer.0.SelfAttention.relative_attention_bias.weight", config.num_buckets, config.num_heads
            )
            for name in names
        ]
        table = torch.cat(tables, 1)
        return create_bias(table, config.num_heads, config.max_distance, bidirectional=stack == "encoder")
