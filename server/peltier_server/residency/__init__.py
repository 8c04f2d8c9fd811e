"""Adapters in memory: loading, leases and eviction."""
