"""The passes of continuous decoding: the encoding of rows that join, and the steps of the rows that are there."""

from collections.abc import Sequence
from typing import Protocol

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import Cache
from torch import Tensor

from peltier_adapters.batch.forward import has_frames
from peltier_adapters.batch.row import Row, adapt, adapt_tokens


class Steps(Protocol):
    """The next steps of rows, until rows join or leave the cache. Row r is decoded in slot r of the slots given."""

    def __call__(self, tokens: Sequence[int]) -> Tensor:
        """The next-token logits [rows, vocab] after one more token of each row. Each slot grows by its token."""


class _ViewSteps:
    """On the CPU, and by torch on a GPU."""

    def __init__(self, backbone: Backbone, rows: Sequence[Row], slots: Sequence[int], cache: Cache) -> None:
        self._backbone = backbone
        self._adaptation = adapt_tokens(backbone, rows, [1] * len(rows))
        self._view = backbone.t5.arrange(slots, cache)

    def __call__(self, tokens: Sequence[int]) -> Tensor:
        model, ids = self._backbone.t5, torch.tensor(tokens, device=self._backbone.device)
        return model.logits(model.step(ids, self._view, self._adaptation), self._adaptation)


def arrange(backbone: Backbone, rows: Sequence[Row], slots: Sequence[int], cache: Cache) -> Steps:
    """The next steps of `rows`, which are in `Row.order`; `slots` are theirs."""
    if not has_frames(backbone):
        return _ViewSteps(backbone, rows, slots, cache)
    from peltier_adapters.batch.step_frame import FrameSteps  # needs Triton

    return FrameSteps(backbone, rows, slots, cache)


def join(backbone: Backbone, rows: Sequence[Row], copies: Sequence[int], cache: Cache) -> list[list[int]]:
    """Encode `rows`, which are in `Row.order`, and assign `copies[r]` slots of the cache to each; returns these."""
    if has_frames(backbone):
        from peltier_adapters.batch.step_frame import join_frame  # needs Triton

        return join_frame(backbone, rows, copies, cache)
    model, packed = backbone.t5, backbone.pack([row.prompted for row in rows])
    adaptation = adapt(backbone, rows, packed.lengths)
    return cache.join(model.project_kv(packed, model.encode(packed, adaptation), adaptation), copies)
