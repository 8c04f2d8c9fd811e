"""A whole store as files, and back."""
