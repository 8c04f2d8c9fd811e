"""A substitute for a backbone's model: the same layers with maps that cost almost nothing, and no checkpoint.

An adapter acts in it at all the places where it acts in the model, in float32, and every machine computes the same to
the rounding of float32. So its outputs identify an adapter on a server that keeps the model itself in a coarser
precision. The outputs mean nothing else.

A map selects inputs and halves them, in another order for each map; norms have weights of one; the rows of tables are
sines. All of that is fixed: recorded outputs depend on it.
"""

import math
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.checkpoint.config import Config, EuroBertConfig
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.linear.linear import Linear, Map
from peltier_backbone.model import Model, architecture

# The sines of products of whole numbers and this one look random. It is the inverse of the plastic number.
_FREQUENCY = 0.7548776662466927
# Halved inputs keep the scores of a T5, which does not divide them by the head's size, out of a softmax's saturation.
_SCALE = 0.5
# Each map begins to select at another place.
_STEP = 7
# 2-D weights that a model reads itself; the others are those of maps and of token embeddings.
_READ_BY_MODEL = ("position_embeddings", "token_type_embeddings", "relative_attention_bias", "rel_embeddings")


@torch.inference_mode(mode=False)
def build_substitute(config: Config, *, has_pooler: bool = True) -> Model:
    """The substitute for a model of `config`. Only some checkpoints of encoders have a pooler. Each head has its
    own keys and values, because adapters change those of each head."""
    if isinstance(config, EuroBertConfig):
        config = replace(config, num_key_heads=config.num_heads)
    return architecture(config).build(config, _Weights(has_pooler), _Maps(), _Sines)


def _sines(rows: Tensor, width: int) -> Tensor:
    """The rows of a table, [*rows, width]; computed in float64, because the numbers before the sine are large."""
    angles = (rows.double() + 1)[..., None] * torch.arange(1, width + 1, dtype=torch.float64) * _FREQUENCY
    return (math.sqrt(2) * angles.sin()).float()


class _Weights(Weights):
    """Weights by name and shape. Those of maps and token embeddings have only a shape: one byte stands for all."""

    def __init__(self, has_pooler: bool) -> None:
        super().__init__({}, Path())
        self._has_pooler = has_pooler

    def __contains__(self, name: str) -> bool:
        return self._has_pooler or not name.startswith("pooler.")

    def take(self, name: str, *shape: int) -> Tensor:
        if len(shape) == 1:
            return torch.ones(shape) if name.endswith(".weight") else torch.zeros(shape)
        if any(part in name for part in _READ_BY_MODEL):
            return _sines(torch.arange(shape[0]), shape[1])
        return torch.zeros(1, dtype=torch.uint8).expand(shape)


class _Sines:
    """A table of token embeddings whose rows are computed when they are read."""

    def __init__(self, weight: Tensor, shared: Linear | None = None) -> None:
        self._shape = weight.shape

    def __call__(self, ids: Tensor) -> Tensor:
        return _sines(ids, self._shape[1])

    def part(self, start: int, stop: int) -> Tensor:
        return self(torch.arange(start, stop))

    def weight(self) -> Tensor:
        return self(torch.arange(self._shape[0]))


class _Maps:
    """Builds the maps of a model and numbers them."""

    name, coarse = "substitute", False

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        self._count += 1
        return _Selection(weight.shape[1], weight.shape[0], _STEP * self._count, bias)


class _Selection(Map):
    """Output o is half of input (o + first), counted around. More outputs than inputs begin again at another place;
    more inputs than outputs are added up first, in as many pieces as they have."""

    def __init__(self, inputs: int, outputs: int, first: int, bias: Tensor | None) -> None:
        self._inputs, self._outputs, self._bias = inputs, outputs, bias
        period, places = min(inputs, outputs), torch.arange(outputs)
        self._num_pieces = math.ceil(inputs / outputs)
        self._places = (places + (1 + places // period) * first) % period

    def __call__(self, x: Tensor) -> Tensor:
        if self._num_pieces > 1:
            padded = F.pad(x, (0, self._num_pieces * self._outputs - self._inputs))
            x = padded.view(-1, self._num_pieces, self._outputs).sum(1) / math.sqrt(self._num_pieces)
        y = _SCALE * x[:, self._places]
        return y if self._bias is None else y + self._bias

    def weights(self) -> tuple[Tensor, Tensor | None]:
        bias = torch.zeros(self._outputs) if self._bias is None else self._bias
        return (self(torch.eye(self._inputs)) - bias).t(), self._bias
