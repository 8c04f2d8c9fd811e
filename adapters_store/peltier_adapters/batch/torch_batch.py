"""Batches by torch, layer by layer: the reference, and what serves where there are no kernels for whole batches."""

from peltier_backbone.attention.view import NativeView
from peltier_backbone.text.packing import Packed
from torch import Tensor

from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.batch.packed_batch import PackedBatch


class TorchBatch(PackedBatch):
    """See `PackedBatch`: the layers are those of the models."""

    def advance(self, x: Tensor, packed: Packed, adaptation: BatchAdaptation, layers: range) -> Tensor:
        return self._backbone.bert.advance(x, packed, adaptation, layers)

    def encode(self, x: Tensor, packed: Packed, adaptation: BatchAdaptation) -> Tensor:
        return self._backbone.t5.encoder(x, packed.lengths, adaptation)

    def decode(self, x: Tensor, view: NativeView, adaptation: BatchAdaptation) -> Tensor:
        return self._backbone.t5.decoder(x, view, adaptation)
