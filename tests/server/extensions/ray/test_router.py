"""The order of replicas, with the ring of Ray and without a cluster."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("grpc_reflection", reason="Ray Serve is not installed")

from peltier_server.extensions.ray.router import BoundedLoadRouter
from ray.serve._private.common import DeploymentID, ReplicaID

REPLICAS = [ReplicaID(name, DeploymentID("replica", "peltier")) for name in ("a", "b", "c")]


async def order(load: dict[str, int], session: str = "default/sst2") -> list[str]:
    """The names of the replicas in the order in which a request is tried."""
    router: Any = BoundedLoadRouter.__new__(BoundedLoadRouter)
    replicas = {one: SimpleNamespace(replica_id=one) for one in REPLICAS}
    router._replicas, router._num_virtual_nodes, router._num_fallback_replicas = replicas, 100, 10
    router._replica_queue_len_cache = {one: load.get(one.unique_id) for one in REPLICAS}
    router._deployment_id = REPLICAS[0].deployment_id
    router._rebuild_ring(frozenset(REPLICAS))
    pending: Any = SimpleNamespace(
        metadata=SimpleNamespace(session_id=session, internal_request_id="1"), routing_context=SimpleNamespace()
    )
    ranked = await router.choose_replicas([*replicas.values()], pending)
    return [one.replica_id.unique_id for (one,) in ranked]


async def test_a_session_has_one_order() -> None:
    """It depends on the session alone while no replica has more than its share."""
    first = await order({})
    assert sorted(first) == ["a", "b", "c"]
    assert await order({"a": 1, "b": 1, "c": 1}) == first
    assert len({(*await order({}, f"default/{number}"),) for number in range(40)}) > 3


async def test_a_busy_replica_comes_last() -> None:
    """A replica with more than 1.5 times the average comes after the others, which keep their order."""
    home, *others = await order({})
    assert await order({home: 5, others[0]: 4, others[1]: 4}) == [home, *others]
    assert await order({home: 9, others[0]: 3, others[1]: 3}) == [*others, home]


async def test_few_requests_stay_together() -> None:
    """A task with a few requests at a time stays on its replica, although the others have none."""
    home, *others = await order({})
    assert await order({home: 3}) == [home, *others]
    assert await order({home: 4}) == [*others, home]
