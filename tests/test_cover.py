"""Which cases of a product the gate runs."""

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import tiers
from tests.support.cover import cover

SIZES = st.lists(st.integers(1, 6), min_size=2, max_size=4)


@pytest.fixture(autouse=True, scope="module")
def _gate() -> Iterator[None]:
    """As in `make test`, whichever tier runs this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiers, "is_gate", lambda: True)
        yield


def _axes(sizes: list[int]) -> dict[str, list[str]]:
    return {name: [f"{name}{number}" for number in range(size)] for name, size in zip("abcd", sizes, strict=False)}


@given(sizes=SIZES)
def test_every_value_is_in_few_cases(sizes: list[int]) -> None:
    """Without pairs there are as many cases as the longest axis has values."""
    found = cover(_axes(sizes))
    assert [set(column) for column in zip(*found, strict=True)] == [set(values) for values in _axes(sizes).values()]
    assert len(found) == max(sizes)


@given(sizes=SIZES, seed=st.integers(0, 9))
def test_every_pair_is_in_some_case(sizes: list[int], seed: int) -> None:
    """The cases are part of the product, in its order."""
    axes = _axes(sizes)
    found = cover(axes, pairs=[lambda a, b, **others: (a, b)], seed=seed)
    assert {case[:2] for case in found} == {*product(axes["a"], axes["b"])}
    assert found == [case for case in product(*axes.values()) if case in found]


@given(sizes=SIZES)
def test_a_case_that_cannot_be_is_left_out(sizes: list[int]) -> None:
    """The values and pairs of all others are covered."""
    axes = _axes(sizes)

    def possible(a: str, b: str, **others: str) -> bool:
        return (a[1:], b[1:]) != ("0", "1")

    found = cover(axes, where=possible, pairs=[lambda a, b, **others: (a, b)])
    assert {case[:2] for case in found} == {*product(axes["a"], axes["b"])} - {("a0", "b1")}


def test_a_pairwise_array_is_far_smaller_than_the_product() -> None:
    """Six axes of five values have 15,625 cases, and 25 for each two axes."""
    axes = {name: list(range(5)) for name in "abcdef"}
    pairs = [lambda one=one, other=other, **case: (case[one], case[other]) for one, other in ("ab", "cd", "ef")]
    assert 25 <= len(cover(axes, pairs=pairs)) <= 50


def test_the_same_cases_are_chosen_each_time() -> None:
    """Another seed chooses others. Values need not be hashable."""
    axes = {"a": [{}, {"x": 1}, [2]], "b": list(range(9))}
    assert cover(axes) == cover(axes)
    assert len({str(cover(axes, seed=seed)) for seed in range(5)}) > 1


def test_all_tiers_but_the_gate_run_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does `pytest FILE`, which repeats any case by its id."""
    monkeypatch.setattr(tiers, "is_gate", lambda: False)
    assert cover(_axes([3, 4])) == [*product(*_axes([3, 4]).values())]
