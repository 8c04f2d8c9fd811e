"""The output layer of a foreign checkpoint for an encoder."""

from dataclasses import dataclass
from typing import Literal

import torch
from peltier_backbone.config import BackboneConfig
from torch import Tensor

from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.spec.parts import HeadSpec

Pooling = Literal["pooler", "first", "mean"]


@dataclass(frozen=True)
class Dense:
    """A torch linear layer: weight [out, in], bias [out]."""

    weight: Tensor
    bias: Tensor


def take_dense(checkpoint: Checkpoint, name: str, out: int | None, width: int | None) -> Dense:
    """The layer `name` with a weight [out, width], where None is any size; a missing bias is zeros."""
    weight = checkpoint.take(f"{name}.weight", out, width)
    bias = checkpoint.take_if(f"{name}.bias", len(weight))
    return Dense(weight, torch.zeros(len(weight)) if bias is None else bias)


def create_head(output: Dense, pooling: Pooling, hidden: Dense | None = None) -> ImportedPart:
    """The part of an output layer, after the tanh layer `hidden` if it is given."""
    spec = HeadSpec(pooling=pooling, hidden=hidden is not None, outputs=len(output.weight))
    tensors = {"weight": output.weight.T, "bias": output.bias}
    if hidden is not None:
        tensors |= {"dense.weight": hidden.weight.T, "dense.bias": hidden.bias}
    return ImportedPart(spec, tensors)


def take_head(checkpoint: Checkpoint, config: BackboneConfig) -> ImportedPart | None:
    """The head of a Hugging Face model for sequence classification: BERT's reads the pooler, RoBERTa's the first token.

    A pooler in the checkpoint becomes the head's tanh layer. None if there is no `classifier`.
    """
    hidden = config.hidden_size
    if "classifier.out_proj.weight" in checkpoint:
        dense = take_dense(checkpoint, "classifier.dense", hidden, hidden)
        return create_head(take_dense(checkpoint, "classifier.out_proj", None, hidden), "first", dense)
    if "classifier.weight" not in checkpoint:
        return None
    output = take_dense(checkpoint, "classifier", None, hidden)
    if "pooler.dense.weight" in checkpoint:
        return create_head(output, "first", take_dense(checkpoint, "pooler.dense", hidden, hidden))
    return create_head(output, "pooler")
