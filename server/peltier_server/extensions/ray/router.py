"""The replica that Ray Serve's proxies choose for a request."""

import math
from typing import Any

from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter

# As deploy/haproxy.cfg: hash-balance-factor 150.
_BOUND = 1.5
# So few requests are one batch, and no reason to load an adapter a second time.
_FEW = 4


class BoundedLoadRouter(ConsistentHashRouter):
    """Consistent hashing of the header `x-session-id` with bounded load (Mirrokni, Thorup and Zadimoghaddam, 2018).

    A replica that already has its share of the proxy's requests comes after the others, in the order of the hash. The
    share is 1.5 times the average, and at least four. Requests without a session are spread evenly.
    """

    async def choose_replicas(self, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:
        """The replicas in the order in which they are tried, each in a list of its own."""
        ranked = await super().choose_replicas(candidate_replicas, pending_request)
        load = {one.replica_id: self.replica_queue_len_cache.get(one.replica_id) or 0 for one in candidate_replicas}
        most = max(_FEW, math.ceil(_BOUND * (sum(load.values()) + 1) / max(len(load), 1)))
        # The sort is stable: replicas of either kind keep their order.
        return sorted(ranked, key=lambda rank: all(load.get(one.replica_id, 0) >= most for one in rank))
