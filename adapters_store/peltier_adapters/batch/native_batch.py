"""Batches by the native kernels of the CPU: all layers of a model, with all adapters, are one call."""

from peltier_backbone.attention.view import NativeView, PlacedView
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.likeliest import Likeliest
from peltier_backbone.native.stack import NativeStack
from peltier_backbone.text.packing import Packed
from torch import Tensor

from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.batch.packed_batch import PackedBatch
from peltier_adapters.ops.native import NativeBackend, NativeOps


class NativeBatch(PackedBatch):
    """See `PackedBatch`. The kernels of the backend have packed the maps of the backbone."""

    def __init__(self, backbone: Backbone, backend: NativeBackend) -> None:
        super().__init__(backbone, backend)
        self._library = backend.library

    def advance(self, x: Tensor, packed: Packed, adaptation: BatchAdaptation, layers: range) -> Tensor:
        model = self._backbone.bert
        assert model.native is not None, "the kernels have packed its maps"
        return self._run(model.native.part(layers.start, layers.stop), x, model.view(packed), adaptation)

    def encode(self, x: Tensor, packed: Packed, adaptation: BatchAdaptation) -> Tensor:
        encoder = self._backbone.t5.encoder
        return self._run(encoder.native, x, encoder.view(x, packed.lengths), adaptation)

    def decode(self, x: Tensor, view: NativeView, adaptation: BatchAdaptation) -> Tensor:
        return self._run(self._backbone.t5.decoder.native, x, view, adaptation)

    def find_likeliest(self, logits: Tensor) -> Likeliest:
        return Likeliest(*self._library.likeliest(logits))

    def _run(self, stack: NativeStack | None, x: Tensor, view: PlacedView, adaptation: BatchAdaptation) -> Tensor:
        """The states after all layers of `stack` of the states x before them, both [tokens, hidden]."""
        ops = adaptation.ops
        assert stack is not None, "the kernels have packed its maps"
        assert isinstance(ops, NativeOps), "they are those of the native backend"
        placed = ops.placed
        rows = view.place(placed.table if placed.prefixed else None)
        states = self._library.run_stack(stack, x, rows, placed)
        ops.record(stack.places())
        return states
