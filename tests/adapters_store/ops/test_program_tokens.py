"""The tokens of one program's adapters in a batch, compared with the same operations on those tokens alone."""

from itertools import accumulate
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.norm import LayerNorm
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this machine")

from peltier_adapters.ops.program_tokens import ProgramTokens, place_of

WIDTH = 6
BASE = LayerNorm(torch.ones(WIDTH), torch.zeros(WIDTH), 1e-5)


class Case(NamedTuple):
    """Rows of `lengths` tokens, `groups[r]` the group of each, with tokens before and behind."""

    before: int
    lengths: list[int]
    groups: list[int]
    behind: int

    @property
    def owners(self) -> list[int]:
        """The group of each token."""
        return [group for length, group in zip(self.lengths, self.groups, strict=True) for _ in range(length)]

    @property
    def tokens(self) -> ProgramTokens:
        """With room for two groups and two rows more."""
        rows = [*accumulate(self.lengths, initial=self.before)]
        firsts = [row for row, group in enumerate(self.groups) if row == 0 or group != self.groups[row - 1]]
        starts = [rows[row] for row in firsts] + rows[-1:] * 3
        tensors = (starts, rows + rows[-1:] * 2, [*self.groups, 0, 0])
        total = rows[-1] + self.behind
        return ProgramTokens(*(torch.tensor(own, dtype=torch.int32) for own in tensors), total)

    def among(self, x: Tensor) -> Tensor:
        """The tokens x with others around them, which are not even numbers."""
        return torch.nn.functional.pad(x, (0, 0, self.before, self.behind), value=torch.nan)

    def own(self, x: Tensor) -> Tensor:
        """Of x the tokens of the program."""
        return x[self.before : len(x) - self.behind]

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(len(self.lengths)))

    def draw_tokens(self) -> Tensor:
        return self.draw(sum(self.lengths), WIDTH)

    def draw_weights(self) -> tuple[Tensor, Tensor]:
        """For each group that there is, and with room for two more."""
        weights = self.draw(self.groups[-1] + 1, WIDTH)
        return weights, torch.cat((weights, torch.full((2, WIDTH), torch.nan)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    steps = draw(st.lists(st.integers(0, 1), min_size=len(lengths) - 1, max_size=len(lengths) - 1))
    return Case(draw(st.integers(0, 3)), lengths, [*accumulate(steps, initial=0)], draw(st.integers(0, 3)))


@given(case=cases())
def test_vectors_of_groups_reach_own_tokens(case: Case):
    """The others get 0."""
    vectors, more = case.draw_weights()
    expected = torch.nn.functional.pad(vectors[case.owners], (0, 0, case.before, case.behind))
    assert torch.equal(case.tokens.of_tokens(more), expected)


@given(case=cases())
def test_norms_are_each_groups_own(case: Case):
    """For the tokens of the program; the other tokens are not read."""
    x, (weight, more) = case.draw_tokens(), case.draw_weights()
    found, own = case.tokens.norm(case.among(x), more, more, BASE), weight[case.owners]
    torch.testing.assert_close(case.own(found), torch.nn.functional.layer_norm(x, (WIDTH,), eps=1e-5) * own + own)


@given(case=cases())
def test_means_of_rows_are_spread_to_own_tokens(case: Case):
    """A row that is not there has the mean 0, and tokens of other programs get 0."""
    x, rows = case.draw_tokens(), len(case.lengths)
    means = case.tokens.row_mean(case.among(x))
    torch.testing.assert_close(means[:rows], torch.stack([piece.mean(0) for piece in x.split(case.lengths)]))
    assert not means[rows:].any()
    spread = case.tokens.spread(means)
    assert torch.equal(case.own(spread), torch.repeat_interleave(means[:rows], torch.tensor(case.lengths), 0))
    assert float(spread.abs().sum()) == pytest.approx(float(case.own(spread).abs().sum()))


@given(case=cases())
def test_kernels_are_given_every_token_once(case: Case):
    """Runs cover all tokens: those before and behind have no slot, and groups that are not there are empty."""
    runs = case.tokens.runs
    lengths = (runs.starts[1:] - runs.starts[:-1]).tolist()
    groups = [sum(n for n, one in zip(case.lengths, case.groups, strict=True) if one == g) for g in set(case.groups)]
    assert lengths == [case.before, *groups, 0, 0, case.behind]
    assert runs.slots.tolist() == [-1, *range(len(groups) + 2), -1]
    assert runs.longest == sum(lengths)


@given(first=st.integers(0, 5), lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6), behind=st.integers(0, 5))
def test_each_token_finds_its_run(first: int, lengths: list[int], behind: int):
    """Also beside empty runs; -1 before the first, and as many as there are behind the last."""
    starts = list(accumulate(lengths, initial=first))
    expected = [-1] * first + [run for run, length in enumerate(lengths) for _ in range(length)]
    expected += [len(lengths)] * behind
    tokens = torch.arange(len(expected), dtype=torch.int32)
    assert place_of(torch.tensor(starts, dtype=torch.int32), tokens).tolist() == expected
