"""Shares of an alias."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_server.catalog.published import TrafficSplit, split_faults

IDS = [f"request-{number}" for number in range(20_000)]


def test_the_same_request_id_always_gets_the_same_version() -> None:
    assert [TrafficSplit({3: 0.5, 4: 0.5}, "t:a@x").choose(one) for one in IDS[:8]] == [3, 4, 3, 4, 3, 4, 3, 4]


def test_the_shares_come_out_over_many_ids() -> None:
    counts = Counter(map(TrafficSplit({1: 0.7, 2: 0.2, 3: 0.1}, "salt").choose, IDS))
    for number, share in ((1, 0.7), (2, 0.2), (3, 0.1)):
        assert counts[number] / len(IDS) == pytest.approx(share, abs=4 * (share * (1 - share) / len(IDS)) ** 0.5)


def test_moving_a_share_moves_no_more_ids_than_it_must() -> None:
    """An id in the canary stays in it as the canary grows."""
    small, large = TrafficSplit({1: 0.9, 2: 0.1}, "salt"), TrafficSplit({1: 0.6, 2: 0.4}, "salt")
    assert all(large.choose(one) == 2 for one in IDS if small.choose(one) == 2)


def test_splits_of_different_aliases_are_independent() -> None:
    """A tenth of the ids is in the smaller share of one; of these a tenth is in that of the other."""
    one, other = TrafficSplit({1: 0.9, 2: 0.1}, "a"), TrafficSplit({1: 0.9, 2: 0.1}, "b")
    chosen = [name for name in IDS if one.choose(name) == 2]
    assert sum(other.choose(name) == 2 for name in chosen) / len(chosen) == pytest.approx(0.1, abs=0.04)


@given(
    weights=st.dictionaries(st.integers(1, 99), st.floats(1e-9, 1.0), min_size=1, max_size=9),
    request_id=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
)
def test_only_versions_of_the_split_are_chosen(weights: dict[int, float], request_id: str) -> None:
    total = sum(weights.values())
    shares = {number: weight / total for number, weight in weights.items()}
    assert split_faults(shares) == []
    assert TrafficSplit(shares, "salt").choose(request_id) in shares


@pytest.mark.parametrize(
    ("shares", "faults"),
    [
        ({}, ["versions is empty: a split names at least one version"]),
        ({1: 0.5, 2: 0.4}, ["the shares sum to 0.9: they must sum to 1"]),
        (
            {1: float("nan"), 2: -0.5, 3: float("inf"), 4: 1.0},
            [
                "version 1 has the share nan: it must be a number above 0",
                "version 2 has the share -0.5: it must be a number above 0",
                "version 3 has the share inf: it must be a number above 0",
            ],
        ),
    ],
)
def test_every_fault_is_named(shares: dict[int, float], faults: list[str]) -> None:
    assert split_faults(shares) == faults
