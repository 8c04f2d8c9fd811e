"""Parametrised products: all cases in `make test-all` and by `pytest FILE`, few of them in the gate."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

from tests.support import tiers

# The gate runs the same cases each time, so that a case fails only by the change that breaks it.
_SEED = 1


def cover(
    axes: Mapping[str, Sequence[Any]],
    *,
    where: Callable[..., bool] = lambda **case: True,
    pairs: Sequence[Callable[..., Hashable]] = (),
    seed: int = _SEED,
) -> list[tuple[Any, ...]]:
    """The cases of a product in its order, for `pytest.mark.parametrize`: tuples with a value of each axis.

    They are all that `where` accepts. In the gate they are a few of these, which have every value of every axis and
    every result of each of `pairs`: a result says which code of its own a case runs. Both kinds of functions take the
    values of a case by the names of their axes. An id is made of the values, so it names one case in every tier.
    """
    goals: list[tuple[tuple[Any, ...], set[Hashable]]] = []
    for places in product(*(range(len(values)) for values in axes.values())):
        values = tuple(own[place] for own, place in zip(axes.values(), places, strict=True))
        named = dict(zip(axes, values, strict=True))
        if where(**named):
            goals.append(
                (values, {*enumerate(places), *((len(axes) + k, pair(**named)) for k, pair in enumerate(pairs))})
            )
    chosen = _choose([own for _, own in goals], seed) if tiers.is_gate() else range(len(goals))
    return [goals[number][0] for number in chosen]


def _choose(goals: Sequence[set[Hashable]], seed: int) -> list[int]:
    """Numbers of sets whose union is that of all, each time the one that adds most; ties are broken at random."""
    order = Random(seed).sample(range(len(goals)), len(goals))
    missing, chosen = set().union(*goals), []
    while missing:
        best = max(order, key=lambda number: len(goals[number] & missing))
        missing -= goals[best]
        chosen.append(best)
    return sorted(chosen)
