"""Where adapters are kept: the bytes, what cares for them, and backups of it all."""
