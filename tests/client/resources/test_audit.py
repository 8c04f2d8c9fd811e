import pytest
from peltier_client.errors import InvalidInput
from peltier_client.resources import audit


def test_a_tenant_that_cannot_be_is_not_sent() -> None:
    """A mistake is one sentence."""
    with pytest.raises(InvalidInput):
        audit.read_audit("a b")
