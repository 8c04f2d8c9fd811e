"""The registry: tenants, keys, adapters, versions, aliases and the audit log."""
