"""Where adapters are kept: the registry, the blobs, and backups of both."""
