"""The simulation of a fleet, against what is known exactly."""

from dataclasses import replace

import pytest

from benchmarks.common.fleet_model import FleetModel, FleetSimulation

# One request at a time, and no loads: a queue with constant service.
PLAIN = FleetModel(1, 1, batch_seconds=0.0, row_seconds=0.01, load_seconds=0.0, fetch_seconds=0.0, max_rows=1)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_one_replica_is_the_queue_of_the_textbook(load: float) -> None:
    """The mean latency is Pollaczek's and Khinchine's for M/D/1, s + load s / (2 (1 - load))."""
    found = FleetSimulation(PLAIN).run_open(load / PLAIN.row_seconds, 60_000)
    expected = PLAIN.row_seconds * (1 + load / (2 * (1 - load)))
    # Five standard errors of a queue at this load are below 5 %.
    assert sum(found.latencies) / len(found.latencies) == pytest.approx(expected, rel=0.05)
    assert found.utilisation == pytest.approx(load, rel=0.05)


def test_requests_that_differ_wait_longer() -> None:
    """The mean latency is Pollaczek's and Khinchine's for M/G/1, s + load s (1 + c²) / (2 (1 - load)), with the
    variance c² of the factors."""
    found = FleetSimulation(replace(PLAIN, factors=(0.5, 1.5))).run_open(0.6 / PLAIN.row_seconds, 60_000)
    expected = PLAIN.row_seconds * (1 + 0.6 * (1 + 0.25) / (2 * (1 - 0.6)))
    assert sum(found.latencies) / len(found.latencies) == pytest.approx(expected, rel=0.05)
    assert found.utilisation == pytest.approx(0.6, rel=0.05)


def test_affinity_alone_keeps_one_copy_of_each_task() -> None:
    """And every task is loaded once."""
    found = FleetSimulation(FleetModel(4, 50, factor=1e6)).run_closed(8, 1000)
    assert (found.copies, found.loads) == (1.0, 0.0)


def test_a_bounded_load_spills_and_no_affinity_copies_everywhere() -> None:
    """The copies grow from affinity to none, and the largest share falls."""
    runs = [FleetSimulation(FleetModel(4, 50, factor=factor)).run_closed(8, 4000) for factor in (1e6, 2.0, None)]
    assert 1.0 == runs[0].copies < runs[1].copies < runs[2].copies <= 4.0
    assert runs[0].largest_share > runs[1].largest_share > 0.25


def test_a_device_holds_its_capacity() -> None:
    """With room for fewer tasks than there are, others are loaded again."""
    simulation = FleetSimulation(FleetModel(2, 100, alpha=0.0, factor=1e6, capacity=20))
    simulation.fill()
    found = simulation.run_open(20.0, 4000)
    assert found.loads == pytest.approx(1 - 40 / 100, abs=0.05)
