"""How many replicas a fleet needs, what spilling costs, and what happens with a million adapters, by a simulation.

    .venv/bin/python benchmarks/fleet_simulation.py --measured runs/fleet.json [--json runs/fleet-plan.json]

The simulation (`common/fleet_model.py`) has HAProxy's rule and replicas that compute batches. `--measured` is what
`fleet.py --json` wrote: the simulation takes the CPU time of a batch and of a row from it, and the latencies of a
single caller, relative to that time, as the factors by which requests differ. It is compared with the benchmark in the
copies of an adapter, the largest replica's share, and the latencies of requests by a Poisson process. Then it answers
the three questions for replicas with a core each and requests that do not differ. It takes a minute of one core.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

from common.fleet_model import FleetModel, FleetSimulation, SimulatedFleet
from common.harness import Table, add_json, create_parser, percentile, write_json

RATES = (10, 50, 100, 200, 400, 800)
CROWDS = (10, 1_000, 100_000)
# The longest 99th percentile that a fleet is allowed, as a multiple of a lone request's time.
PATIENCE = 8.0
POLICIES: Mapping[str, float | None] = {
    "affinity alone": 1e6,
    "2.0": 2.0,
    "1.5": 1.5,
    "1.25": 1.25,
    "no affinity": None,
}
MILLION = 1_000_000
CAPACITIES = (1_000, 3_000, 10_000, 30_000, 100_000)
MILLION_FACTORS = (1.5, 4.0)
NUM_REQUESTS = 6_000


def measured_model(found: Mapping[str, Any]) -> FleetModel:
    """The CPU seconds of a batch and of a row: those of one caller, and of as many as the benchmark has, whose requests
    share a batch on one replica. Without the factors of single requests."""
    first, callers = found["throughput"][0], found["callers"]
    assert first["replicas"] == 1, "the first measurement must be that of one replica"
    lone, shared = first["one_by_one"], first["cpu_seconds"] / first["requests"]
    row = max(0.2 * lone, (callers * shared - lone) / (callers - 1))
    return FleetModel(1, first["tasks"], found["alpha"], batch_seconds=max(0.0, lone - row), row_seconds=min(row, lone))


def compare(found: Mapping[str, Any], model: FleetModel) -> Iterator[dict[str, float]]:
    """The simulation beside the benchmark, for each number of replicas."""
    heads = [head for name in ("copies", "largest", "p50 ms", "p99 ms") for head in (name, "simulated")]
    table = Table("replicas", *heads, first=10)
    for one in found["throughput"]:
        lone = model.batch_seconds + model.row_seconds
        model = replace(model, factors=tuple(seconds / lone for seconds in one["lone_latencies"]))
        runs = [
            FleetSimulation(replace(model, replicas=one["replicas"]), seed).run_closed(
                found["callers"], one["requests"]
            )
            for seed in range(5)
        ]
        copies = sum(run.copies for run in runs) / len(runs)
        largest = sum(run.largest_share for run in runs) / len(runs)
        opened = filled(replace(model, replicas=one["replicas"])).run_open(found["rate"], NUM_REQUESTS)
        p50, p99 = opened.quantile(0.5), opened.quantile(0.99)
        shares = f"{one['copies']:.2f}", f"{copies:.2f}", f"{one['largest_share']:.2f}", f"{largest:.2f}"
        pairs = ((percentile(one["latencies"], 50), p50), (percentile(one["latencies"], 99), p99))
        table.row(one["replicas"], *shares, *(f"{1000 * time:.1f}" for pair in pairs for time in pair))
        yield {"replicas": one["replicas"], "copies": copies, "largest_share": largest, "p50": p50, "p99": p99}


def filled(model: FleetModel) -> FleetSimulation:
    """A simulation that begins with full devices."""
    simulation = FleetSimulation(model)
    simulation.fill()
    return simulation


def needed(model: FleetModel, rate: float) -> tuple[int, SimulatedFleet]:
    """The fewest replicas whose 99th percentile is short enough."""
    lone = model.batch_seconds + model.row_seconds
    for count in range(max(1, int(rate * model.row_seconds)), 1000):
        found = filled(replace(model, replicas=count)).run_open(rate, NUM_REQUESTS)
        if found.quantile(0.99) <= PATIENCE * lone + model.fetch_seconds:
            return count, found
    raise AssertionError("no fleet is large enough")


def plan(model: FleetModel) -> list[dict[str, float]]:
    """Replicas by the rate of requests and the number of tasks."""
    table, rows = Table("requests/s", "tasks", "replicas", "busy", "copies", "p99 ms", "loads", first=12), []
    for tasks in CROWDS:
        for rate in RATES:
            count, found = needed(replace(model, tasks=tasks, capacity=10_000), rate)
            row = {"rate": rate, "tasks": tasks, "replicas": count, "copies": found.copies, "loads": found.loads}
            rows.append(row | {"p99": found.quantile(0.99), "utilisation": found.utilisation})
            shown = f"{found.utilisation:.2f}", f"{found.copies:.2f}", f"{1000 * found.quantile(0.99):.0f}"
            table.row(rate, f"{tasks:,}", count, *shown, f"{found.loads:.3f}")
    return rows


def spilling(model: FleetModel) -> list[dict[str, Any]]:
    """What the balancer's factor costs and saves: eight replicas, 1,000 tasks, two loads of the fleet."""
    table, rows = Table("factor", "busy", "copies", "largest", "p50 ms", "p99 ms", "loads", first=16), []
    for busy in (0.4, 0.7):
        rate = 8 * busy / (model.row_seconds + model.batch_seconds)
        for name, factor in POLICIES.items():
            fleet = replace(model, replicas=8, tasks=1_000, factor=factor, capacity=400)
            found = filled(fleet).run_open(rate, 4 * NUM_REQUESTS)
            row = {"policy": name, "load": busy, "copies": found.copies, "loads": found.loads}
            rows.append(row | {"p50": found.quantile(0.5), "p99": found.quantile(0.99), "largest": found.largest_share})
            times = (f"{1000 * found.quantile(part):.0f}" for part in (0.5, 0.99))
            shares = f"{found.utilisation:.2f}", f"{found.copies:.2f}", f"{found.largest_share:.2f}"
            table.row(name, *shares, *times, f"{found.loads:.3f}")
    return rows


def million(model: FleetModel) -> list[dict[str, float]]:
    """A million tasks on 16 replicas at half of their capacity: how many requests wait for a load, with the balancer's
    bound and with a wider one."""
    table, rows = Table("on a device", "factor", "loads", "loads/s", "busy", "p50 ms", "p99 ms", first=12), []
    rate = 16 * 0.5 / (model.row_seconds + model.batch_seconds)
    for capacity, factor in product(CAPACITIES, MILLION_FACTORS):
        fleet = replace(model, replicas=16, tasks=MILLION, capacity=capacity, factor=factor)
        found = filled(fleet).run_open(rate, 5 * NUM_REQUESTS)
        row = {"capacity": capacity, "factor": factor, "loads": found.loads, "rate": rate, "p50": found.quantile(0.5)}
        rows.append(row | {"p99": found.quantile(0.99), "utilisation": found.utilisation})
        times = (f"{1000 * found.quantile(part):.0f}" for part in (0.5, 0.99))
        shares = f"{found.loads:.3f}", f"{rate * found.loads:.0f}", f"{found.utilisation:.2f}"
        table.row(f"{capacity:,}", factor, *shares, *times)
    return rows


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--measured", type=Path, required=True, help="what fleet.py --json wrote")
    add_json(parser, "the answers")
    asked = parser.parse_args()
    found = json.loads(asked.measured.read_text())
    model = measured_model(found)
    print(f"a batch takes {1000 * model.batch_seconds:.1f} ms, and {1000 * model.row_seconds:.1f} ms for each row")
    answers = {"model": asdict(model), "measured": found["throughput"], "compared": list(compare(found, model))}
    write_json(asked, answers | {"plan": plan(model), "spilling": spilling(model), "million": million(model)})


if __name__ == "__main__":
    main()
