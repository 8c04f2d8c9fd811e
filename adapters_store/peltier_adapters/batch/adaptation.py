"""The adaptation of one batch. A group of neighbouring rows shares an adapter, and a backend runs the adapters' ops."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, groupby

import torch
from peltier_backbone.attention.adaptation import NoAdaptation, Prefix, Projection, Sublayer
from peltier_backbone.backbone import Backbone
from peltier_backbone.linear.norm import Norm
from torch import Tensor

from peltier_adapters.ops.backend import AdapterGroup, Backend, GroupedOps
from peltier_adapters.ops.op import PrefixKeys, at


class SiteAdaptation(NoAdaptation):
    """Applies ops at projections, sub-layers and norms, for models whose attention handles prefixes itself."""

    def __init__(self, ops: GroupedOps) -> None:
        self.ops = ops

    def project(self, number: int, site: Projection, x: Tensor, y: Tensor) -> Tensor:
        return self.ops.act(site, number, y, x)

    def sublayer(self, block: int, site: Sublayer, y: Tensor, residual: Tensor) -> Tensor:
        return self.ops.act(site, block, y, y, residual)

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        return self.ops.norm(index, x, base, residual)


class BatchAdaptation(SiteAdaptation):
    """The `Adaptation` of a batch. `groups` cover all rows in order, and `lengths` are the tokens of each row."""

    def __init__(
        self, backbone: Backbone, groups: Sequence[AdapterGroup], lengths: Sequence[int], backend: Backend
    ) -> None:
        self.groups = tuple(groups)
        self._backbone, self._backend, self._lengths = backbone, backend, tuple(lengths)
        super().__init__(backend.group(self.groups, self._lengths))

    def spans(self, num_rows: int) -> Sequence[tuple[int, int]]:
        return [span.rows for span in self._spans] or [(0, num_rows)]

    def prefix(self, attention: int, span: int, x: Tensor) -> Prefix | None:
        return self._spans[span].prefix(attention, x) if self._spans else None

    @cached_property
    def _spans(self) -> "list[_Span]":
        """Empty if no row has a prefix."""
        if not any(group.program and group.program.prefixes for group in self.groups):
            return []
        return list(_spans(self.groups, self._lengths, self._backbone, self._backend))

    def embed(self, x: Tensor) -> Tensor:
        places, prompts = find_prompts(self.groups, self._lengths)
        return write_prompts(x, torch.tensor(places, device=x.device), prompts) if prompts else x

    def pool(self, scores: Tensor) -> Tensor:
        """The pooler's scores [rows, hidden] plus the bias of each row's adapter. May change `scores` in place."""
        if not any(group.program and ("pooler", 0) in group.program.placed for group in self.groups):
            return scores
        rows = self._backend.group(self.groups, [1] * len(self._lengths))
        return rows.act("pooler", 0, scores, scores)


def find_prompts(groups: Sequence[AdapterGroup], lengths: Sequence[int]) -> tuple[list[int], list[Tensor]]:
    """The numbers of all tokens that are soft prompts, and the prompt of each row that has one."""
    starts, places, prompts, row = [0, *accumulate(lengths)], list[int](), list[Tensor](), 0
    for group in groups:
        prompt = group.program and group.program.prompt
        if prompt:
            weight = at(prompt.weight, group.flat)
            for start in starts[row : row + group.rows]:
                places += range(start, start + len(weight))
                prompts.append(weight)
        row += group.rows
    return places, prompts


def write_prompts(x: Tensor, places: Tensor, prompts: Sequence[Tensor]) -> Tensor:
    """Embeddings `x` with what `find_prompts` found, in place."""
    x[places] = torch.cat(list(prompts)).to(x.dtype)
    return x


class _Span:
    """Neighbouring groups whose rows share an attention call: all without a prefix, or with prefixes of one length in
    the same attentions."""

    def __init__(
        self, groups: Sequence[AdapterGroup], first: int, lengths: Sequence[int], backbone: Backbone, backend: Backend
    ) -> None:
        self.rows, self._backbone, self._groups = (first, first + len(lengths)), backbone, groups
        self._prefixed = frozenset(_prefixes(groups[0]))
        if self._prefixed:
            self._ops = backend.group(groups, lengths)
            numbers = [number for number, group in enumerate(groups) for _ in range(group.rows)]
            self._numbers = torch.tensor(numbers, device=backbone.device)
            self._known: dict[int, Prefix] = {}

    def prefix(self, attention: int, x: Tensor) -> Prefix | None:
        """Prefix keys and values of each row, [rows, heads, prefix, head size], times their gates; None without a
        prefix."""
        if attention not in self._prefixed:
            return None
        if attention not in self._known:
            self._known[attention] = self._gather(attention)
        keys, values = (one.index_select(0, self._numbers) for one in self._known[attention])
        gates = self._ops.prefix_gates(attention, x)
        if gates is not None:
            scale = gates[:, :, None, None].to(keys.dtype)
            keys, values = keys * scale, values * scale
        return Prefix(keys, values)

    def _gather(self, attention: int) -> Prefix:
        """The prefix of each group. The caller keeps it, because each step of a generated text reads it again."""
        own = [(_prefixes(group)[attention], group.flat) for group in self._groups]
        keys = torch.stack([at(one.keys, flat) for one, flat in own])
        values = torch.stack([at(one.values, flat) for one, flat in own])
        return Prefix(keys.to(self._backbone.dtype), values.to(self._backbone.dtype))


def _prefixes(group: AdapterGroup) -> Mapping[int, PrefixKeys]:
    """The prefixes of a group's adapter, by attention."""
    return {} if group.program is None else group.program.prefixes


def _prefix_shape(group: AdapterGroup) -> tuple[frozenset[int], int]:
    """The attentions in which a group's rows have a prefix, and its length."""
    own = _prefixes(group)
    return frozenset(own), max((one.keys.shape[1] for one in own.values()), default=0)


def _spans(
    groups: Sequence[AdapterGroup], lengths: Sequence[int], backbone: Backbone, backend: Backend
) -> Iterator[_Span]:
    first = 0
    for _, run in groupby(groups, key=_prefix_shape):
        members = list(run)
        last = first + sum(group.rows for group in members)
        yield _Span(members, first, lengths[first:last], backbone, backend)
        first = last
