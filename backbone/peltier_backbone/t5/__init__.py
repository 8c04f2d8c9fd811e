"""T5 and its relatives."""
