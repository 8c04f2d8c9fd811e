from types import SimpleNamespace

import pytest
from peltier_server.extensions.ray.autoscaling import QueuedTokensPolicy


@pytest.mark.parametrize(
    ("reported", "wanted"),
    [({}, 0), ({"a": 0.0, "b": 0.0}, 0), ({"a": 50.0, "b": 150.0}, 2), ({"a": 100.0, "b": 101.0}, 2.01)],
)
def test_replicas_share_the_queued_tokens(reported: dict[str, float], wanted: float) -> None:
    """As many replicas as leave the target to each; Ray rounds up and applies the bounds."""
    context = SimpleNamespace(aggregated_metrics={"queued_tokens": reported})
    assert QueuedTokensPolicy(target=100)(context) == (wanted, {})


def test_no_report_wants_no_replica() -> None:
    """Before the first report Ray keeps the least number."""
    assert QueuedTokensPolicy(target=100)(SimpleNamespace(aggregated_metrics=None)) == (0, {})
