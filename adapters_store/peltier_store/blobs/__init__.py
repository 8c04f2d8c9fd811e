"""The bytes of artifacts."""
