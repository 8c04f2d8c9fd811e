"""The quotas of tenants: requests and tokens a second, and concurrent requests."""
