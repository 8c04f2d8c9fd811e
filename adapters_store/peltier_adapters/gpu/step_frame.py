"""The passes of continuous decoding on a GPU, each with one copy from the host (see `t5_frame.py`)."""

from collections.abc import Sequence

from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import Cache
from peltier_backbone.native.rows import PlacedRows
from torch import Tensor

from peltier_adapters.batch.adaptation import SiteAdaptation
from peltier_adapters.batch.indices import Indices, Values
from peltier_adapters.batch.row import Row, group_rows
from peltier_adapters.gpu.backend import TritonOps
from peltier_adapters.gpu.frame import find_kernels
from peltier_adapters.gpu.kernels.attention import NUM_ROW_WORDS, Attention
from peltier_adapters.gpu.kernels.rows import Rows
from peltier_adapters.gpu.t5_frame import EncoderPass, Places, RowVectors


def join_frame(backbone: Backbone, rows: Sequence[Row], copies: Sequence[int], cache: Cache) -> list[list[int]]:
    """See `Runner`."""
    encoder = EncoderPass(backbone, rows, group_rows(rows, record_gates=False))
    with cache.admit(encoder.lengths, copies) as arrival:
        vectors: dict[str, Values] = {"slots": arrival.slots, "numbers": arrival.numbers}
        if arrival.tokens is not None:
            vectors["tokens"] = arrival.tokens
        indices = Indices.of(encoder.vectors | vectors, backbone.device)
        tokens = None if arrival.tokens is None else indices["tokens"]
        cache.keep(encoder.run(indices), indices["slots"], indices["numbers"], tokens)
        return arrival.by_row()


class FrameSteps:
    """Implements `Steps`, and the view of its decoder."""

    def __init__(self, backbone: Backbone, rows: Sequence[Row], slots: Sequence[int], cache: Cache) -> None:
        self._backbone, self._slots, self._cache = backbone, slots, cache
        own = RowVectors(find_kernels(backbone, backbone.dtype), rows, [1] * len(rows))
        memory = cache.memory
        cross = PlacedRows.tokens(memory.first_keys(slots), [memory.lengths[slot] for slot in slots])
        self._fixed: dict[str, Values] = {
            "starts": range(len(rows) + 1), "bases": own.bases, "programs": own.programs,
            "cross": cross.layout.flatten(),
        }  # fmt: skip
        sizes = {name: len(values) for name, values in self._fixed.items()}
        sizes |= {"tokens": len(rows), "numbers": len(rows), "own": NUM_ROW_WORDS * len(rows)}
        indices = self._indices = Indices(sizes, backbone.device)
        placed = Rows(indices["starts"], indices["bases"], indices["programs"], 1)
        self._ops = TritonOps(placed, own.tables)
        self._adaptation = SiteAdaptation(self._ops)

    def __call__(self, tokens: Sequence[int]) -> Tensor:
        """See `Steps`. Call it only after the logits of the previous call have been read."""
        model, own, slots = self._backbone.t5, self._cache.own, self._slots
        lengths = [own.lengths[slot] for slot in slots]
        own.reserve(max(slots) + 1, max(lengths) + 1)
        first = own.first_keys(slots)
        line = model.decoder.bias.line_before(own.data.shape[4])
        placed = PlacedRows.tokens(first, [length + 1 for length in lengths], line)
        numbers = [key + length for key, length in zip(first, lengths, strict=True)]
        self._indices.fill(
            self._fixed | {"tokens": tokens, "numbers": numbers, "own": placed.layout.flatten()}
        )  # fmt: skip
        hidden = model.decoder.run(model.embedding(self._indices["tokens"]), self, self._adaptation)
        own.grow(slots)
        return model.logits(hidden, self._adaptation)

    def attend_self(self, layer: int, number: int, x: Tensor, qkv: Tensor) -> Tensor:
        size = qkv.shape[1] // 3
        self._cache.own.write(layer, qkv[:, size:], self._indices["numbers"])
        places = self._places("own").from_head(self._backbone.t5.decoder.bias.first_head(layer))
        return _attend(self._ops.attention(number), qkv[:, :size], self._cache.own.data[layer], places)

    def attend_cross(self, layer: int, number: int, x: Tensor, query: Tensor) -> Tensor:
        return _attend(self._ops.attention(number), query, self._cache.memory.data[layer], self._places("cross"))

    def _places(self, name: str) -> Places:
        return Places(self._indices[name], 1, self._backbone.config.num_heads)


def _attend(kernels: Attention, query: Tensor, store: Tensor, places: Places) -> Tensor:
    """`store` is [2, slots, heads, width, head size]."""
    width, size = store.shape[3:]
    key, value = store.view(2, -1, size).unbind()
    return places.attend(kernels, query, key, value, width * size)
