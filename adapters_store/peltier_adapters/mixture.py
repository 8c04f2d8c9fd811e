"""The adaptation of one batch: neighbouring slices of rows, each with the parts of one signature."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Protocol

import torch
from peltier_backbone.adaptation import Norm, Projection, Sublayer
from peltier_backbone.attention import Prefix
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.parts import PARTS, Context, Part
from peltier_adapters.parts.bias import Bias
from peltier_adapters.parts.gate import read_central
from peltier_adapters.segments import Segments
from peltier_adapters.spec import Parts
from peltier_adapters.tensors import Tensors

# Neighbouring slices from the first to the last, and the part that they share (None: the backbone's own).
Run = tuple["Slice", "Slice", Part | None]
Acting = dict[str, list[tuple["Slice", list[Part]]]]
_NORM_AFTER: dict[str, int] = {"attention": 1, "ffn": 2}


class Layout(Protocol):
    """Rows back to back; `starts` has one entry a row and the total last. `Packed` is one."""

    @property
    def lengths(self) -> tuple[int, ...]: ...

    @property
    def starts(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class Slice:
    """Rows `first..last` of a batch, all of one signature; `parts` is empty for rows without an adapter."""

    first: int
    last: int
    tokens: slice
    context: Context
    parts: tuple[Part, ...]

    @property
    def norm(self) -> Part | None:
        return next((part for part in self.parts if part.has_norm), None)

    @property
    def prefix(self) -> Part | None:
        return next((part for part in self.parts if part.has_prefix), None)

    @property
    def pooler_bias(self) -> Tensor | None:
        """What each row's task adds to the pooler's bias, [rows, hidden]."""
        for part in self.parts:
            if isinstance(part, Bias) and part.pooler is not None:
                return part.pooler.index_select(0, self.context.segments.groups)
        return None


def create_slice(  # noqa: PLR0913 - the six things a slice is made of
    backbone: Backbone, layout: Layout, first: int, groups: Sequence[int], parts: Parts, tensors: Tensors, *,
    record_gates: bool = False,
) -> Slice:  # fmt: skip
    """The slice of `len(groups)` rows from `first` on; `tensors` carry a leading group dimension, `groups` says which
    group each row belongs to (0, 0, 1, …)."""
    last = first + len(groups)
    segments = Segments(layout.lengths[first:last], groups, backbone.device, backbone.dtype)
    central = read_central(tensors, segments.weights_dtype)
    context = Context(backbone, segments, {} if record_gates else None, central)
    live = apply_parts(parts, tensors, context)
    return Slice(first, last, slice(layout.starts[first], layout.starts[last]), context, live)


def apply_parts(parts: Parts, tensors: Tensors, context: Context) -> tuple[Part, ...]:
    """Those of `parts` that act inside the backbone, with their tensors."""
    return tuple(_apply(part.kind, part, tensors, context) for part in parts if PARTS[part.kind].apply)


def _apply(kind: str, part: object, tensors: Tensors, context: Context) -> Part:
    apply = PARTS[kind].apply
    assert apply is not None
    return apply(part, tensors.under(f"{kind}."), context)


class Mixture:
    """An `Adaptation` of slices that cover all rows in order. Outputs are changed in place, slice by slice; a single
    slice (training) gets whole tensors, which keeps autograd free of views."""

    def __init__(self, backbone: Backbone, slices: Sequence[Slice]) -> None:
        self._slices = tuple(slices)
        self._norms = backbone.model.norms()
        self._projecting = _by_site(self._slices, lambda part: part.projections)
        self._finishing = _by_site(self._slices, lambda part: part.sublayers)
        self.projections = frozenset(self._projecting)
        # Rows without a prefix attend together whatever their slice, and likewise for norms.
        self._attending = _runs(self._slices, lambda one: one.prefix)
        self._normed = _runs(self._slices, lambda one: one.norm)

    def spans(self, num_rows: int) -> Sequence[tuple[int, int]]:
        return [(first.first, last.last) for first, last, _ in self._attending]

    def prefix(self, layer: int, span: int, x: Tensor) -> Prefix | None:
        part = self._attending[span][2]
        return part.prefix(layer, x) if part is not None else None

    def project(self, layer: int, site: Projection, x: Tensor, y: Tensor) -> Tensor:
        for one, parts in self._projecting.get(site, ()):
            given, changed = self._of(x, one), self._of(y, one)
            for part in parts:
                part.project(layer, site, given, changed)
        return y

    def sublayer(self, layer: int, site: Sublayer, y: Tensor, residual: Tensor) -> Tensor:
        index = 2 * layer + _NORM_AFTER[site]
        for one, parts in self._finishing.get(site, ()):
            norm, changed = partial(self._apply_norm, one.norm, index), self._of(y, one)
            for part in parts:
                changed = part.sublayer(layer, site, changed, self._of(residual, one), norm)
            if len(self._slices) == 1:
                return changed
        return y

    def embed(self, x: Tensor) -> Tensor:
        for one in self._slices:
            for part in one.parts:
                if part.has_prompt:
                    part.embed(self._of(x, one))
        return x

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        if len(self._normed) == 1:
            return self._apply_norm(self._normed[0][2], index, x, residual)
        places, pieces = [], []
        for first, last, part in self._normed:
            tokens = slice(first.tokens.start, last.tokens.stop)
            places.append(x[tokens])
            pieces.append(self._apply_norm(part, index, places[-1], None if residual is None else residual[tokens]))
        in_place = all(piece.data_ptr() == place.data_ptr() for piece, place in zip(pieces, places, strict=True))
        return x if in_place else torch.cat(pieces)

    def _apply_norm(self, part: Part | None, index: int, x: Tensor, residual: Tensor | None = None) -> Tensor:
        base = self._norms[index]
        return base(x, residual) if part is None else part.norm(index, x, base, residual)

    def _of(self, tensor: Tensor, one: Slice) -> Tensor:
        return tensor if len(self._slices) == 1 else tensor[one.tokens]


def _by_site(slices: Sequence[Slice], sites_of: Callable[[Part], frozenset[str]]) -> Acting:
    """For each site the slices that change it, each with the parts that do."""
    acting: Acting = {}
    for one in slices:
        for site in frozenset[str]().union(*map(sites_of, one.parts)):
            acting.setdefault(site, []).append((one, [part for part in one.parts if site in sites_of(part)]))
    return acting


def _runs(slices: Sequence[Slice], part_of: Callable[[Slice], Part | None]) -> list[Run]:
    runs: list[Run] = []
    for part, group in groupby(slices, key=part_of):
        members = list(group)
        runs.append((members[0], members[-1], part))
    return runs
