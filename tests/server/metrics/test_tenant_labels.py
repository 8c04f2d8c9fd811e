"""Labels of metrics."""

from peltier_server.metrics.tenant_labels import TenantLabels


def test_tenant_labels_are_bounded_in_number() -> None:
    """The first tenants keep their labels."""
    labels = TenantLabels(max_labels=2)
    assert [labels.of(tenant) for tenant in ("a", "b", "c", "a", "d", "b")] == [
        "a",
        "b",
        "_others",
        "a",
        "_others",
        "b",
    ]
    assert set(labels.known) == {"a", "b", "_others"}


def test_callers_without_a_key_share_a_label() -> None:
    """Which no tenant can have as a name."""
    assert TenantLabels().of(None) == "_nobody"
