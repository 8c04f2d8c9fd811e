"""Export of a whole store to a file, and import."""
