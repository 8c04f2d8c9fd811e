"""One pass of a frozen backbone over the rows of several trainings, back to back.

Whatever depends on an adapter, on the rows of a batch or on random numbers is computed for each member apart, in
tensors of the shapes that a pass of its own has: on a CPU a row's states do not depend on the other members
(`fit/shared_steps.py`).
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
from peltier_adapters.batch.adaptation import SiteAdaptation
from peltier_adapters.ops.torch import TORCH
from peltier_backbone.attention.adaptation import Prefix, Projection, Sublayer
from peltier_backbone.attention.view import SelfView, View
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import EncoderKV
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.linear.norm import Norm
from peltier_backbone.text.packing import Encoded, Packed
from torch import Tensor

from peltier_training.models.model import DropoutAdaptation, HeadedAdapter, TextAdapter, last_states
from peltier_training.models.stream import Stream


class MixedAdaptation(SiteAdaptation):
    """The adaptation of a pass over the rows of several trainings. Each member's ops, attention and dropout see its own
    rows only. A T5 asks its views for prefixes, and the members for soft prompts."""

    def __init__(self, members: Sequence[DropoutAdaptation]) -> None:
        super().__init__(
            TORCH.group([g for one in members for g in one.groups], [n for one in members for n in one.lengths])
        )
        self.trains = torch.is_grad_enabled()
        self._members, self._sizes = members, [sum(one.lengths) for one in members]
        self._spans = [
            (one, number) for one in members for number, _ in enumerate(one.spans(len(one.lengths)))
        ]  # fmt: skip

    def spans(self, num_rows: int) -> Sequence[tuple[int, int]]:
        starts = accumulate((len(one.lengths) for one in self._members), initial=0)
        return [
            (start + first, start + last)
            for start, one in zip(starts, self._members, strict=False)
            for first, last in one.spans(len(one.lengths))
        ]

    def embed(self, x: Tensor) -> Tensor:
        return torch.cat([one.embed(own) for one, own in zip(self._members, self._split(x), strict=True)])

    def prefix(self, attention: int, span: int, x: Tensor) -> Prefix | None:
        member, number = self._spans[span]
        return member.prefix(attention, number, x)

    def project(self, number: int, site: Projection, x: Tensor, y: Tensor) -> Tensor:
        y = super().project(number, site, x, y)
        return self._drop(y) if self._members[0].drops_projection(number, site) else y

    def sublayer(self, block: int, site: Sublayer, y: Tensor, residual: Tensor) -> Tensor:
        return self._drop(super().sublayer(block, site, y, residual))

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        y = super().norm(index, x, base, residual)
        return self._drop(y) if index == self._members[0].dropped_norm else y

    def _drop(self, x: Tensor) -> Tensor:
        return torch.cat([one.drop(own) for one, own in zip(self._members, self._split(x), strict=True)])

    def _split(self, x: Tensor) -> Sequence[Tensor]:
        return torch.split(x, self._sizes)


class MixedSelfView:
    """Implements `SelfView`: the tokens of several members, `sizes` of each, attend as the view of their member."""

    def __init__(self, views: Sequence[SelfView], sizes: Sequence[int]) -> None:
        self._views, self._sizes = views, list(sizes)

    def attend_self(self, layer: int, number: int, x: Tensor, qkv: Tensor) -> Tensor:
        members = zip(self._views, self._split(x), self._split(qkv), strict=True)
        return torch.cat([view.attend_self(layer, number, *own) for view, *own in members])

    def _split(self, x: Tensor) -> Sequence[Tensor]:
        return torch.split(x, self._sizes)


class MixedView(MixedSelfView):
    """Implements `View` in the same way."""

    def __init__(self, views: Sequence[View], sizes: Sequence[int]) -> None:
        super().__init__(views, sizes)
        self._decoding = views

    def attend_cross(self, layer: int, number: int, x: Tensor, query: Tensor) -> Tensor:
        members = zip(self._decoding, self._split(x), self._split(query), strict=True)
        return torch.cat([view.attend_cross(layer, number, *own) for view, *own in members])


def forward_together(
    adapters: Sequence[HeadedAdapter], rows: Sequence[Sequence[Encoded]], streams: Sequence[Stream]
) -> list[Tensor]:
    """The outputs of each adapter for its own `rows`, from one pass over the rows of all. All have one backbone, and
    leave the same number of blocks alone."""
    backbone = adapters[0].backbone
    packs = [backbone.pack(list(own)) for own in rows]
    passes = [one.begin(p.lengths, stream) for one, p, stream in zip(adapters, packs, streams, strict=True)]
    adaptation = MixedAdaptation([one.adaptation for one in passes])
    lower = [one.lower_blocks.states(own) for one, own in zip(adapters, rows, strict=True) if one.lower_blocks]
    packed = backbone.pack([row for own in rows for row in own])
    hidden = last_states(adapters[0], packed, adaptation, torch.cat(lower) if lower else None)
    parts = torch.split(hidden, [sum(pack.lengths) for pack in packs])
    members = zip(adapters, passes, packs, parts, strict=True)
    return [one.finish(own, pack, states) for one, own, pack, states in members]


def decode_together(
    adapters: Sequence[TextAdapter],
    rows: Sequence[Sequence[Encoded]],
    targets: Sequence[Targets],
    streams: Sequence[Stream],
) -> list[Tensor]:
    """The next-token logits of each adapter for its own `rows` and `targets`, from one pass of the T5 over all."""
    backbone, model = adapters[0].backbone, adapters[0].backbone.t5
    packs = [backbone.pack(list(own)) for own in rows]
    given = zip(adapters, packs, targets, streams, strict=True)
    passes = [one.begin(pack.lengths, texts.lengths, stream) for one, pack, texts, stream in given]
    memories = _encode(backbone, rows, packs, [one.encoder for one in passes])
    views = [model.view(texts, own, p.decoder) for texts, own, p in zip(targets, memories, passes, strict=True)]
    sizes, adaptation = [len(texts.ids) for texts in targets], MixedAdaptation([one.decoder for one in passes])
    x = model.embedding(torch.cat([texts.ids for texts in targets]))
    hidden = torch.split(model.decoder.run(x, MixedView(views, sizes), adaptation), sizes)
    dropped = [one.drop_output(own, p.stream) for one, own, p in zip(adapters, hidden, passes, strict=True)]
    return list(torch.split(model.logits(torch.cat(dropped), adaptation), sizes))


def _encode(
    backbone: Backbone,
    rows: Sequence[Sequence[Encoded]],
    packs: Sequence[Packed],
    members: Sequence[DropoutAdaptation],
) -> list[EncoderKV]:
    """The keys and values of each member's rows, for its cross-attentions."""
    model, adaptation, sizes = backbone.t5, MixedAdaptation(members), [sum(pack.lengths) for pack in packs]
    embedded = [one.embed(model.embedding(pack.ids)) for one, pack in zip(members, packs, strict=True)]
    own = zip(embedded, packs, members, strict=True)
    views = [model.encoder.view(x, pack.lengths, one) for x, pack, one in own]
    states = model.encoder.run(torch.cat(embedded), MixedSelfView(views, sizes), adaptation)
    memory = model.project_kv(backbone.pack([row for own in rows for row in own]), states, adaptation)
    layers = [torch.split(both, sizes) for both in memory.key_values]
    return [EncoderKV(tuple(layer[number] for layer in layers), pack.lengths) for number, pack in enumerate(packs)]
