"""How many replicas the queue needs."""

from typing import Any

# The name of the metric that replicas report.
QUEUED_TOKENS = "queued_tokens"


class QueuedTokensPolicy:
    """An autoscaling policy of Ray Serve: as many replicas as leave `target` queued tokens to each.

    Ray averages the reports of each replica over its look-back period, and applies the bounds and delays.
    """

    def __init__(self, target: int) -> None:
        self._target = target

    def __call__(self, context: Any) -> tuple[float, dict[str, Any]]:
        """The wanted number of replicas, which Ray rounds up, and no state."""
        reported = (context.aggregated_metrics or {}).get(QUEUED_TOKENS, {})
        return sum(reported.values()) / self._target, {}
