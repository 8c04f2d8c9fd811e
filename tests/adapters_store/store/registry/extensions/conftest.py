"""The operations of extensions on the registry of a test."""

import pytest
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.extensions.rollouts import RolloutRegistry


@pytest.fixture
def rollouts(registry: Registry) -> RolloutRegistry:
    """Its guarded changes and answers."""
    return registry.rollouts
